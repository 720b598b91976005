"""Amounts as people type them, and as forms show them again."""

import pytest
from control_plane.dashboard.amounts import (
    as_typed,
    dollars_as_typed,
    nano_dollars,
    whole_number,
)
from control_plane.dashboard.fields import LinesField, MomentField, PercentsField
from django.core.exceptions import ValidationError
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("500", 500),
        (" 250,000 ", 250_000),
        ("250k", 250_000),
        ("2M", 2_000_000),
        ("1.5 m", 1_500_000),
        ("3B", 3 * 10**9),
        ("3G", 3 * 10**9),
        ("1T", 10**12),
        ("7.0", 7),
    ],
)
def test_counts_are_read_as_people_type_them(text: str, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        "-5",
        "1.5",
        "2,50",
        "1e9",
        "0x10",
        "NaN",
        "Infinity",
        "1_000",
        "٣",
        "$5",
        "5%",
        "k",
        "9" * 20,
    ],
)
def test_what_is_no_count_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        whole_number(text)


@pytest.mark.parametrize(
    ("text", "nanos"),
    [
        ("$250", 250 * 10**9),
        ("250", 250 * 10**9),
        ("$ 0.05", 5 * 10**7),
        ("$1,250.50", 1250_500_000_000),
        ("2k", 2000 * 10**9),
        ("0.000000001", 1),
    ],
)
def test_money_is_read_as_people_type_it(text: str, nanos: int) -> None:
    assert nano_dollars(text) == nanos


@pytest.mark.parametrize("text", ["", "$", "$-1", "0.0000000001", "€5", "$1.2.3", "1e3"])
def test_what_is_no_money_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        nano_dollars(text)


@given(st.integers(min_value=1, max_value=2**63 - 1))
def test_what_a_form_shows_it_reads_again(number: int) -> None:
    assert whole_number(as_typed(number)) == number
    assert nano_dollars(dollars_as_typed(number)) == number


def test_round_numbers_are_shown_short() -> None:
    assert [as_typed(number) for number in (1_500_000, 2000, 12_340_000, 7)] == [
        "1.5M",
        "2k",
        "12,340,000",
        "7",
    ]
    assert [dollars_as_typed(nanos) for nanos in (250 * 10**9, 5 * 10**7, 1234_500_000_000)] == [
        "$250",
        "$0.05",
        "$1,234.50",
    ]


def test_percentages_come_in_order_and_once() -> None:
    field = PercentsField(most=3)
    assert field.clean("100, 50%, 50") == [50, 100]
    assert field.clean("") == []
    for wrong in ("0", "1001", "50.5", "-1", "ten", "1 2 3 4"):
        with pytest.raises(ValidationError):
            field.clean(wrong)


def test_lines_are_bounded_and_none_is_none() -> None:
    assert LinesField().clean(" a \n\n b") == ["a", "b"]
    assert LinesField().clean(" \n ") is None
    with pytest.raises(ValidationError):
        LinesField().clean("\n".join(map(str, range(101))))


def test_moments_are_of_utc_and_those_beyond_the_calendar_are_refused() -> None:
    moment = MomentField().clean("2027-01-31T18:30")
    assert moment is not None and moment.isoformat() == "2027-01-31T18:30:00+00:00"
    for wrong in ("tomorrow", "9999-12-31T23:59:59-05:00", "2027-02-30T00:00"):
        with pytest.raises(ValidationError):
            MomentField().clean(wrong)
