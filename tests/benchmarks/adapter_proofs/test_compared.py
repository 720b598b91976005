"""What counts as one answer, and what as a near-tie."""

from dataclasses import replace

import pytest

from tests.support.greedy_answers.compared import (
    Answer,
    Reference,
    Verdict,
    compare,
    compare_shown,
    largest_gap,
)

# Water; flows or runs, which are as likely; down or up, which are not.
ALONE = Answer(
    text="Water flows down",
    finish_reason="stop",
    prompt_tokens=5,
    completion_tokens=3,
    token_ids=[1, 2, 3],
    likeliest=[{1: -0.1, 9: -4.0}, {2: -0.7001, 8: -0.7006}, {3: -0.2, 7: -0.3}],
)
REFERENCE = Reference(answer=ALONE, texts=["", "Water", "Water flows", "Water flows down"])


def test_the_same_tokens_text_end_and_usage_are_one_answer() -> None:
    assert compare(ALONE, ALONE) is Verdict.EQUAL
    assert compare_shown(ALONE, ALONE, REFERENCE) is Verdict.EQUAL


@pytest.mark.parametrize(
    "other",
    [
        replace(ALONE, text="Water flows  down"),
        replace(ALONE, finish_reason="length"),
        replace(ALONE, prompt_tokens=6),
        replace(ALONE, completion_tokens=4),
        replace(ALONE, token_ids=[1, 2]),
        replace(ALONE, token_ids=[1, 2, 3, 4]),
    ],
)
def test_the_same_tokens_with_another_text_end_or_usage_are_not(other: Answer) -> None:
    assert compare(other, ALONE) is Verdict.DIFFERENT


@pytest.mark.parametrize(
    ("token_ids", "text", "verdict"),
    [
        ([1, 8, 5, 6], "Water runs on and on", Verdict.NEAR_TIE),
        ([1, 2, 7], "Water flows up", Verdict.DIFFERENT),
        ([9, 2, 3], "Wine flows down", Verdict.DIFFERENT),
        ([1, 4, 3], "Water is down", Verdict.DIFFERENT),
    ],
)
def test_where_tokens_part_they_must_be_as_likely(
    token_ids: list[int], text: str, verdict: Verdict
) -> None:
    other = replace(ALONE, token_ids=token_ids, text=text)
    assert compare(other, ALONE) is verdict


def test_where_texts_part_the_reference_must_have_a_near_tie() -> None:
    runs = replace(ALONE, text="Water runs down")
    assert compare_shown(runs, ALONE, REFERENCE) is Verdict.NEAR_TIE
    for text in ("Wine flows down", "Water flows up", "Water flows down."):
        other = replace(ALONE, text=text)
        assert compare_shown(other, ALONE, REFERENCE) is Verdict.DIFFERENT


def test_the_largest_gap_is_of_tokens_that_both_chose() -> None:
    likeliest = [{1: -0.1002}, {8: -0.7}, {3: -5.0}]
    other = replace(ALONE, token_ids=[1, 8, 3], likeliest=likeliest)
    assert largest_gap(other, ALONE) == pytest.approx(0.0002)
