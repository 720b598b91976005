"""Answers, and when two of them are of the same weights. Needs nothing but msgspec."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

# Between two runs of the same weights: how else requests share a step changes the order in which a
# row is added up, in float32 some 1e-5 of a log-probability.
TOLERANCE: Final = 1e-3
# Two tokens that are nearer to each other than that may change places.
NEAR_TIE: Final = 1e-3


class Answer(msgspec.Struct, frozen=True):
    """The tokens of one answer, the log-probability of each, and by how much it was ahead of the
    next best. An engine that has no log-probabilities has zeros, and is never in doubt."""

    tokens: list[str]
    logprobs: list[float]
    margins: list[float]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> "Answer":
        """Read a whole chat completion."""
        (choice,) = body["choices"]
        rows = (choice.get("logprobs") or {}).get("content")
        if not rows:
            words = choice["message"]["content"].split()
            return cls(words, [0.0] * len(words), [float("inf")] * len(words))
        best = [
            sorted((each["logprob"] for each in row["top_logprobs"]), reverse=True) for row in rows
        ]
        return cls(
            [row["token"] for row in rows],
            [row["logprob"] for row in rows],
            [first - second for first, second, *_ in best],
        )


class Likeness(msgspec.Struct, frozen=True):
    """How an answer differs from what its weights give alone: by so much at most, up to a near tie
    if there is one."""

    deviation: float
    is_near_tie: bool = False


def likeness(alone: Answer, got: Answer) -> Likeness | None:
    """Compare token by token; None: these are other weights'."""
    if len(alone.tokens) != len(got.tokens):
        return None
    deviation = 0.0
    for place, (expected, token) in enumerate(zip(alone.tokens, got.tokens, strict=True)):
        if token != expected:
            is_tie = alone.margins[place] <= NEAR_TIE
            return Likeness(deviation, is_near_tie=True) if is_tie else None
        deviation = max(deviation, abs(alone.logprobs[place] - got.logprobs[place]))
        if deviation > TOLERANCE:
            return None
    return Likeness(deviation)


def alike(answers: Mapping[str, Answer]) -> list[tuple[str, str]]:
    """Return the pairs that could not be told apart, of the answers of different weights to one
    question."""
    ordered = sorted(answers.items(), key=lambda each: each[1].logprobs[:1])
    found = []
    for place, (name, answer) in enumerate(ordered):
        for other, beside in _near(ordered[place + 1 :], answer):
            if likeness(answer, beside) or likeness(beside, answer):
                found.append((name, other))
    return found


def closest(answers: Iterable[Answer]) -> float | None:
    """Return how near two answers of the same tokens come to each other: the largest difference of
    a log-probability of theirs; None where no two have the same tokens."""
    by_tokens: dict[tuple[str, ...], list[Answer]] = {}
    for answer in answers:
        by_tokens.setdefault(tuple(answer.tokens), []).append(answer)
    return min(
        (
            max(abs(a - b) for a, b in zip(one.logprobs, other.logprobs, strict=True))
            for group in by_tokens.values()
            for place, one in enumerate(group)
            for other in group[place + 1 :]
        ),
        default=None,
    )


def _near(ordered: list[tuple[str, Answer]], answer: Answer) -> Iterable[tuple[str, Answer]]:
    """Yield those whose first log-probability is no further away than two runs are."""
    for name, other in ordered:
        if other.logprobs[:1] and other.logprobs[0] - answer.logprobs[0] > TOLERANCE:
            return
        yield name, other
