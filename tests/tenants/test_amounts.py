"""Amounts as people type them, and as forms show them again."""

import pytest
from django.core.exceptions import ValidationError
from hypothesis import given
from hypothesis import strategies as st

from tenants.amount_fields import CountField, DollarsField, MicroDollarsField
from tenants.amounts import (
    as_typed,
    dollars_as_typed,
    micro_dollars,
    micro_dollars_as_typed,
    nano_dollars,
    whole_number,
)


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


def test_micro_dollars_are_read_and_shown_and_nothing_finer() -> None:
    assert (micro_dollars("$2.50"), micro_dollars("0.000001")) == (2_500_000, 1)
    assert micro_dollars_as_typed(150_000) == "$0.15"
    with pytest.raises(ValueError):
        micro_dollars("0.0000001")


@pytest.mark.parametrize(
    ("field", "initial", "same", "other"),
    [
        (DollarsField(), 250 * 10**9, "250.00", "251"),
        (MicroDollarsField(), 150_000, "$ 0.150", "0.16"),
        (CountField(), 250_000, "250k", "250001"),
    ],
)
def test_a_form_knows_whether_an_amount_was_changed(
    field: DollarsField, initial: int, same: str, other: str
) -> None:
    assert not field.has_changed(initial, same)
    assert field.has_changed(initial, other) and field.has_changed(initial, "what?")
    with pytest.raises(ValidationError):
        field.clean("what?")
