"""Whether two greedy answers are one, and where they part whether that was a near-tie."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

NEAR_TIE: Final = 1e-3


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What somebody said. `likeliest`: for each token the log-probabilities of the likeliest, by
    their ids; empty, as `token_ids`, where nobody asked for them."""

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    token_ids: list[int] = field(default_factory=list)
    likeliest: list[dict[int, float]] = field(default_factory=list)

    @property
    def shown(self) -> tuple[str, str, int, int]:
        """Return what a client sees and pays."""
        return self.text, self.finish_reason, self.prompt_tokens, self.completion_tokens


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The answer of transformers; `texts` are of its first 0, 1, 2, ... tokens."""

    answer: Answer
    texts: list[str]

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> "Reference":
        """Read what `by_peft` printed for a question."""
        likeliest = [dict(each) for each in found["likeliest"]]
        answer = Answer(
            text=found["texts"][-1],
            finish_reason=found["finish_reason"],
            prompt_tokens=found["prompt_tokens"],
            completion_tokens=len(found["token_ids"]),
            token_ids=found["token_ids"],
            likeliest=likeliest,
        )
        return cls(answer=answer, texts=found["texts"])


class Verdict(StrEnum):
    """How two answers to one question compare."""

    EQUAL = "equal"
    NEAR_TIE = "near-tie"  # they part where both tokens were as likely, within NEAR_TIE
    DIFFERENT = "different"


def compare(one: Answer, other: Answer) -> Verdict:
    """Compare two answers token by token; `other` judges where they part."""
    for place, (ours, theirs) in enumerate(zip(one.token_ids, other.token_ids, strict=False)):
        if ours != theirs:
            return _judged(other.likeliest[place], ours, theirs)
    is_equal = one.shown == other.shown and len(one.token_ids) == len(other.token_ids)
    return Verdict.EQUAL if is_equal else Verdict.DIFFERENT


def compare_shown(one: Answer, other: Answer, reference: Reference) -> Verdict:
    """Compare two answers by what clients see; `reference` tells where they part."""
    if one.shown == other.shown:
        return Verdict.EQUAL
    together = _common_start(one.text, other.text)
    place = max(number for number, text in enumerate(reference.texts) if together.startswith(text))
    if place >= len(reference.answer.likeliest):
        return Verdict.DIFFERENT
    best, second, *_ = sorted(reference.answer.likeliest[place].values(), reverse=True)
    return Verdict.NEAR_TIE if best - second < NEAR_TIE else Verdict.DIFFERENT


def largest_gap(one: Answer, other: Answer) -> float:
    """Return by how much the two differ at most in the log-probability of a token that both
    chose, up to where they part."""
    gaps = [0.0]
    for ours, theirs, mine, yours in zip(
        one.token_ids, other.token_ids, one.likeliest, other.likeliest, strict=False
    ):
        if ours != theirs:
            break
        gaps.append(abs(mine[ours] - yours[theirs]))
    return max(gaps)


def counted(verdicts: Iterable[Verdict]) -> dict[Verdict, int]:
    """Return how many of each there are."""
    found = list(verdicts)
    return {each: found.count(each) for each in Verdict}


def _judged(likeliest: dict[int, float], one: int, other: int) -> Verdict:
    if one not in likeliest or other not in likeliest:
        return Verdict.DIFFERENT
    gap = abs(likeliest[one] - likeliest[other])
    return Verdict.NEAR_TIE if gap < NEAR_TIE else Verdict.DIFFERENT


def _common_start(one: str, other: str) -> str:
    length = 0
    for ours, theirs in zip(one, other, strict=False):
        if ours != theirs:
            break
        length += 1
    return one[:length]
