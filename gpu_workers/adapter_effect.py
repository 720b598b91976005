"""What a LoRA adapter makes of its base's answers, by log-probabilities of a few next tokens."""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Final

from gpu_workers.engine import ProbeFailed
from gpu_workers.protocol.adapters import AdapterEffect

# Natural text of different kinds, so that an adapter of whatever purpose has to change some.
PROMPTS: Final = (
    "Question: What is water?\nAnswer:",
    "The river runs through the",
    "1, 2, 3, 4,",
    "def main():\n",
)
# Of the most likely next tokens.
TOP: Final = 5
# Below this two answers are the same: no token is chosen by it but in near-ties, and
# float32 resolves ten thousand times less.
LEAST_DIFFERENCE: Final = 1e-3
# Where an engine itself strays by more, it is so many times as much: of a few answers, the largest
# difference that was seen is not the largest there is.
NOISE_TIMES: Final = 4.0
# Logits of likely tokens are of this size, and are rounded to what the engine's numbers resolve: in
# bfloat16 to 1/16 below it and 1/8 above. An adapter of a ten-thousandth of its base's strength
# was seen to turn one such rounding over, 0.06 nats; one of a twentieth changed 0.19.
LOGIT: Final = 16.0

# A next token's id -> its log-probability; one for each prompt.
NextToken = Mapping[int, float]
Answers = Sequence[NextToken]


def is_finite(answers: Answers) -> bool:
    """Tell whether there is no NaN and no infinity in the answers."""
    return all(math.isfinite(value) for answer in answers for value in answer.values())


def least_difference(base: Iterable[Answers], epsilon: float = 0.0) -> float:
    """Return what an adapter's answers have to differ from its base's by more than: those, to the
    same prompts in different company, differ by noise alone. `epsilon` is what the engine's numbers
    resolve, beside 1. Raises `ProbeFailed` for a base without a finite answer: nothing can be told
    from that."""
    tries = list(base)
    if not all(answers and all(answers) and is_finite(answers) for answers in tries):
        raise ProbeFailed("the base's own answers have no finite log-probabilities")
    noise = max((difference(*pair) for pair in combinations(tries, 2)), default=0.0)
    return max(LEAST_DIFFERENCE, NOISE_TIMES * noise, LOGIT * epsilon)


def effect_of(base: Answers, own: Answers, least: float) -> AdapterEffect:
    """Tell an adapter's own answers from the base's, which differ by more than `least` if by
    anything."""
    if not is_finite(own):
        return AdapterEffect.NOT_FINITE
    return AdapterEffect.CHANGES if difference(base, own) > least else AdapterEffect.NONE


def difference(one: Answers, other: Answers) -> float:
    """Return by how much two series of answers differ at most, in nats."""
    return max(map(_difference, one, other), default=0.0)


def _difference(one: NextToken, other: NextToken) -> float:
    """Of a token that only one of them has, the other is known to be at most its least likely."""
    least_of_one, least_of_other = min(one.values()), min(other.values())
    return max(
        abs(one.get(token, least_of_one) - other.get(token, least_of_other))
        for token in one.keys() | other.keys()
    )
