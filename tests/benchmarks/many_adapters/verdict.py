"""Whether every answer is its own adapter's, or the base's where nobody named one."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from tests.benchmarks.many_adapters import questions
from tests.benchmarks.many_adapters.answers import Answer, alike, closest, likeness
from tests.benchmarks.many_adapters.cast import Version
from tests.benchmarks.many_adapters.traffic import Answered, rightful

BASE: Final = "the base"
NOBODY: Final = "nobody"
_EXAMPLES: Final = 10


class Verdict(msgspec.Struct, kw_only=True):
    """Counts of requests. `wrong` are those of adapters that got another's answer, `base_changed`
    those of the base that did, `failed` those without any, by code; `examples` says of some whose
    they asked for and got. `deviation` is the largest difference of a log-probability between what
    somebody got and what it gives alone, `near_ties` those where two tokens that were as good
    changed places. `cached` found their own prompt cached, `cached_of_others` another's."""

    adapters: int
    of_adapters: int
    of_base: int
    wrong: int
    base_changed: int
    failed: dict[str, int]
    examples: list[str]
    near_ties: int
    deviation: float
    cached: int
    cached_of_others: int
    seconds: float

    @property
    def is_clean(self) -> bool:
        return not (self.wrong or self.base_changed or self.failed or self.cached_of_others)


class References:
    """What each version, and the base, answers alone."""

    def __init__(self, versions: Sequence[Version], alone: Mapping[str, list[Answer]]) -> None:
        """`alone`: opaque name, empty for the base -> its answer to each question."""
        self._answers = {version.label: alone[version.opaque] for version in versions}
        self._seeds = {version.label: version.seed for version in versions}
        self._answers[""] = alone[""]

    def indistinct(self) -> list[tuple[str, str]]:
        """Return the pairs of different weights, the base among them, that no question tells apart:
        where there are any, the proof proves nothing of these."""
        pairs = [
            {frozenset(pair) for pair in alike(self._of_weights(number))}
            for number in range(questions.COUNT)
        ]
        return [(one, other) for one, other in map(sorted, set.intersection(*pairs))]

    def closest(self) -> float | None:
        """Return how near two of different weights come to each other, by any question."""
        each = (closest(self._of_weights(number).values()) for number in range(questions.COUNT))
        return min((distance for distance in each if distance is not None), default=None)

    def verdict(self, answered: Sequence[Answered]) -> Verdict:
        near_ties, deviation, examples = 0, 0.0, list[str]()
        failed, wrong = Counter[str](), Counter[bool]()
        for each in answered:
            if each.answer is None:
                failed[each.error] += 1
                continue
            alone = self._answers.get(each.label, [])
            like = likeness(alone[each.ask.question], each.answer) if alone else None
            if like is None or not _is_of(each):
                wrong[each.ask.version is None] += 1
                examples.append(f"{each.label or BASE} got {self._whose(each)}")
                continue
            near_ties += like.is_near_tie
            deviation = max(deviation, like.deviation)
        cached, cached_of_others = rightful(answered)
        return Verdict(
            adapters=len({each.label for each in answered if each.label}),
            of_adapters=sum(each.ask.version is not None for each in answered),
            of_base=sum(each.ask.version is None for each in answered),
            wrong=wrong[False],
            base_changed=wrong[True],
            failed=dict(failed),
            examples=examples[:_EXAMPLES],
            near_ties=near_ties,
            deviation=deviation,
            cached=cached,
            cached_of_others=cached_of_others,
            seconds=max((each.ended for each in answered), default=0.0)
            - min((each.began for each in answered), default=0.0),
        )

    def _of_weights(self, question: int) -> dict[str, Answer]:
        """Return one answer for each weights; twins have the same."""
        one_of = {self._seeds.get(label, 0): label for label in self._answers}
        return {label: self._answers[label][question] for label in one_of.values()}

    def _whose(self, each: Answered) -> str:
        assert each.answer is not None
        for label, answers in self._answers.items():
            if likeness(answers[each.ask.question], each.answer) is not None:
                return label or BASE
        return NOBODY


def _is_of(each: Answered) -> bool:
    """Tell whether the version that answered is one that was asked for."""
    version = each.ask.version
    if version is None:
        return each.label == ""
    return each.label == each.ask.model or each.label.rpartition("@")[0] == each.ask.model
