"""The judge of the thousand adapters finds what is wrong, and takes nothing else for it."""

from dataclasses import replace

from tests.benchmarks.many_adapters import questions
from tests.benchmarks.many_adapters.answers import NEAR_TIE, TOLERANCE, Answer, likeness
from tests.benchmarks.many_adapters.cast import tenants_of, versions_of
from tests.benchmarks.many_adapters.traffic import (
    BASE_SHARE,
    Answered,
    Ask,
    in_turn,
    rightful,
    zipf,
)
from tests.benchmarks.many_adapters.verdict import References

TENANTS = tenants_of(4)
VERSIONS = versions_of(TENANTS, 16)
FIRST, SECOND = VERSIONS[:2]


def answer_of(seed: int) -> Answer:
    """Most adapters differ in a token, two of three only in their log-probabilities."""
    return Answer([f"word{seed // 3}", "and"], [-seed / 100, -1.0], [0.5, 0.5])


def references() -> References:
    alone = {each.opaque: [answer_of(each.seed)] * questions.COUNT for each in VERSIONS}
    return References(VERSIONS, alone | {"": [answer_of(0)] * questions.COUNT})


def own(place: int = 0) -> Answered:
    version = VERSIONS[place]
    ask = Ask(tenant=version.tenant, question=0, model=version.label, version=version)
    answer = answer_of(version.seed)
    return Answered(ask=ask, label=version.label, began=0.0, ended=1.0, answer=answer)


def of_base() -> Answered:
    return Answered(
        ask=Ask(tenant=TENANTS[0], question=0), label="", began=0.0, ended=1.0, answer=answer_of(0)
    )


def test_an_answer_is_its_own_up_to_what_two_runs_differ_by() -> None:
    alone = answer_of(4)
    near = replace_logprob(alone, alone.logprobs[0] + TOLERANCE / 2)
    assert likeness(alone, alone) is not None
    assert likeness(alone, near) is not None
    assert likeness(alone, replace_logprob(alone, alone.logprobs[0] + 2 * TOLERANCE)) is None
    assert likeness(alone, answer_of(5)) is None
    assert likeness(alone, answer_of(8)) is None


def test_two_tokens_that_tie_may_change_places() -> None:
    tied = Answer(["gate", "and"], [-1.0, -1.0], [NEAR_TIE / 2, 0.5])
    other = Answer(["pipe", "of"], [-1.0, -3.0], [NEAR_TIE / 2, 0.5])
    like = likeness(tied, other)
    assert like is not None
    assert like.is_near_tie
    assert likeness(other, Answer(["pipe", "by"], [-1.0, -3.0], [0.1, 0.1])) is None


def test_who_gets_its_own_is_clean() -> None:
    verdict = references().verdict([own(), own(1), of_base()])
    assert verdict.is_clean
    assert (verdict.of_adapters, verdict.of_base, verdict.adapters) == (2, 1, 2)


def test_anothers_answer_is_wrong_whoever_gets_it() -> None:
    swapped = replace(own(), answer=answer_of(SECOND.seed))
    changed = replace(of_base(), answer=answer_of(FIRST.seed))
    silent = replace(own(), answer=answer_of(0))
    relabelled = replace(own(), label=SECOND.label, answer=answer_of(SECOND.seed))
    verdict = references().verdict([swapped, changed, silent, relabelled])
    assert not verdict.is_clean
    assert (verdict.wrong, verdict.base_changed) == (3, 1)


def test_no_answer_is_no_right_one() -> None:
    verdict = references().verdict([replace(own(), answer=None, error="adapter_refused")])
    assert verdict.failed == {"adapter_refused": 1}
    assert not verdict.is_clean


def test_a_prefix_is_rightfully_cached_for_who_asked_before_alone() -> None:
    first = own()
    again = replace(own(), began=2.0, ended=3.0, cached_tokens=128)
    assert rightful([first, again]) == (1, 0)
    assert rightful([again]) == (0, 1)
    assert rightful([replace(of_base(), began=0.0), again]) == (0, 1)
    other = replace(own(1), began=2.0, ended=3.0, cached_tokens=128)
    assert rightful([first, other]) == (0, 1)
    bobs = Ask(tenant=TENANTS[1], question=0)
    base = replace(of_base(), ask=bobs, began=2.0, ended=3.0, cached_tokens=128)
    assert rightful([of_base(), base]) == (0, 1)


def test_adapters_that_nothing_tells_apart_are_counted_but_twins_are_not() -> None:
    assert references().indistinct() == []
    alone = {each.opaque: [answer_of(1)] * questions.COUNT for each in VERSIONS}
    alike = References(VERSIONS, alone | {"": [answer_of(0)] * questions.COUNT})
    weights = len({each.seed for each in VERSIONS})
    assert len(alike.indistinct()) == weights * (weights - 1) // 2
    assert weights < len(VERSIONS)


def test_each_version_is_asked_for_and_the_base_between() -> None:
    asks = zipf(VERSIONS, TENANTS, 100)
    assert {ask.version for ask in asks} == {*VERSIONS, None}
    assert {version.label for version in VERSIONS} <= {ask.model for ask in asks}
    assert sum(ask.version is None for ask in asks) == int(100 * BASE_SHARE)
    assert {ask.version for ask in in_turn(VERSIONS, 16)} == set(VERSIONS)
    assert all(ask.tenant == ask.version.tenant for ask in asks if ask.version is not None)


def replace_logprob(answer: Answer, first: float) -> Answer:
    return Answer(answer.tokens, [first, *answer.logprobs[1:]], answer.margins)
