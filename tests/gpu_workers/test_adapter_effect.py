"""What tells an adapter's answers from its base's, and from the noise of those."""

import math

import pytest

from gpu_workers.adapter_effect import LEAST_DIFFERENCE, effect_of, least_difference
from gpu_workers.engine import ProbeFailed
from gpu_workers.protocol.adapters import AdapterEffect

BASE = [{1: -0.5, 2: -1.5, 3: -3.0}, {7: -0.1, 8: -4.0, 9: -5.0}]


def moved(by: float) -> list[dict[int, float]]:
    return [{token: value + by for token, value in each.items()} for each in BASE]


def test_the_same_answers_are_no_effect_and_others_are_one() -> None:
    least = least_difference([BASE, moved(1e-6)])
    assert least == LEAST_DIFFERENCE
    assert effect_of(BASE, moved(1e-5), least) is AdapterEffect.NONE
    assert effect_of(BASE, moved(0.01), least) is AdapterEffect.CHANGES


def test_an_engine_that_strays_by_itself_has_to_be_strayed_from_by_more() -> None:
    least = least_difference([BASE, moved(0.02), moved(-0.01)])
    assert effect_of(BASE, moved(0.03), least) is AdapterEffect.NONE
    assert effect_of(BASE, moved(0.2), least) is AdapterEffect.CHANGES


def test_what_numbers_of_sixteen_bits_cannot_resolve_is_no_effect() -> None:
    least = least_difference([BASE, BASE], 2**-7)
    assert effect_of(BASE, moved(1 / 16), least) is AdapterEffect.NONE
    assert effect_of(BASE, moved(3 / 16), least) is AdapterEffect.CHANGES


def test_other_tokens_at_the_top_are_an_effect_but_where_they_nearly_tie() -> None:
    other = [{1: -0.5, 2: -1.5, 30: -2.0}, BASE[1]]
    assert effect_of(BASE, other, 1e-3) is AdapterEffect.CHANGES
    near = [{1: -0.5, 2: -1.5, 30: -3.0001}, BASE[1]]
    assert effect_of(BASE, near, 1e-3) is AdapterEffect.NONE


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_number_that_is_not_finite_is_told_whatever_the_others(value: float) -> None:
    assert effect_of(BASE, [BASE[0], {7: -0.1, 8: value}], 1e-3) is AdapterEffect.NOT_FINITE
    with pytest.raises(ProbeFailed):
        least_difference([BASE, [BASE[0], {7: value}]])


@pytest.mark.parametrize("base", [[], [{}, {1: -1.0}]])
def test_of_a_base_that_says_nothing_nothing_is_told(base: list[dict[int, float]]) -> None:
    with pytest.raises(ProbeFailed):
        least_difference([base, base])
