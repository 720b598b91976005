"""Numbers, amounts, moments and ids as people read them."""

from datetime import UTC, datetime, timedelta

import pytest
from control_plane.web import figures

NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1 k"),
        (1234, "1.23 k"),
        (12_345, "12.3 k"),
        (123_456, "123 k"),
        (999_499, "999 k"),
        (999_600, "1 M"),
        (1_240_000, "1.24 M"),
        (5 * 10**9, "5 B"),
        (-1500, "-1.5 k"),
    ],
)
def test_large_numbers_have_three_digits(number: int, text: str) -> None:
    assert figures.short_number(number) == text


@pytest.mark.parametrize(
    ("latency", "text"),
    [
        (None, "unknown"),
        (0.1, "0.1 ms"),
        (20.123, "20.1 ms"),
        (1234.5, "1.23 s"),
        (12_340.0, "12.3 s"),
        (360_000.0, "6 min 0 s"),
    ],
)
def test_latencies_have_three_digits(latency: float | None, text: str) -> None:
    assert figures.short_milliseconds(latency) == text


@pytest.mark.parametrize(
    ("nanos", "text"),
    [
        (0, "$0.00"),
        (12_500_000_000, "$12.50"),
        (1_234_567_891_234, "$1,234.57"),
        (10_000_000, "$0.01"),
        (9_999_999, "$0.009999"),
        (1_234_567, "$0.001234"),
        (1, "$0.000000001"),
        (-2_000_000_000, "-$2.00"),
    ],
)
def test_money_has_cents_and_below_them_four_digits(nanos: int, text: str) -> None:
    assert figures.short_dollars(nanos) == text


@pytest.mark.parametrize(
    ("away", "text"),
    [
        (timedelta(0), "just now"),
        (timedelta(seconds=-59), "just now"),
        (timedelta(minutes=-5), "5 min ago"),
        (timedelta(hours=-23, minutes=-59), "23 h ago"),
        (timedelta(days=-1), "1 day ago"),
        (timedelta(days=-29), "29 days ago"),
        (timedelta(days=-30), "23 Oct 2026"),
        (timedelta(days=3), "in 3 days"),
    ],
)
def test_moments_are_relative_until_the_date_says_more(away: timedelta, text: str) -> None:
    assert figures.relative(NOON + away, NOON) == text


def test_the_exact_moment_is_in_utc() -> None:
    assert figures.exact(NOON) == "22 Nov 2026, 12:00 UTC"


@pytest.mark.parametrize(
    ("now", "before", "text"),
    [
        (112, 100, "12 % more than before"),
        (88, 100, "12 % less than before"),
        (100, 100, "as before"),
        (1, 0, "nothing before"),
        (0, 0, "as before"),
    ],
)
def test_a_figure_is_compared_with_the_period_before(now: int, before: int, text: str) -> None:
    assert figures.comparison(now, before) == text


def test_ids_are_shortened_in_the_middle() -> None:
    assert figures.short_id("6f1c2a34-9b7e-4c0d-8a55-0d3b1e2f4a6c") == "6f1c2a34…4a6c"
    assert figures.short_id("short") == "short"


def test_a_cell_says_the_change_shortly() -> None:
    assert [figures.change(*pair) for pair in ((112, 100), (50, 100), (1, 0), (0, 0), (7, 7))] == [
        "+12 %",
        "-50 %",
        "new",
        "as before",
        "as before",
    ]
