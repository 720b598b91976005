"""Slices of usage: between them they hold all there is, each once."""

from datetime import UTC, date, datetime

import pytest

from gpu_workers.protocol.request_id import new_request_id
from inference.operations import slices
from inference.operations.slices import month_slices, span_of


@pytest.fixture
def months(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    present = {date(2026, 11, 1), date(2027, 1, 1)}
    monkeypatch.setattr(slices, "months_present", lambda: present)
    return month_slices()


def test_months_follow_one_another_from_ever_to_ever(months: list[str]) -> None:
    assert months == [
        "-infinity/2026-12-01",
        "2026-12-01/2027-01-01",
        "2027-01-01/infinity",
    ]
    assert sorted(months) == months


@pytest.mark.parametrize(
    ("at", "place"),
    [
        (datetime(2020, 1, 1, tzinfo=UTC), 0),
        (datetime(2026, 11, 30, 23, 59, 59, 999_000, tzinfo=UTC), 0),
        (datetime(2026, 12, 1, tzinfo=UTC), 1),
        (datetime(2026, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC), 1),
        (datetime(2027, 1, 1, tzinfo=UTC), 2),
        (datetime(2030, 1, 1, tzinfo=UTC), 2),
    ],
)
def test_a_request_is_in_one_of_them(months: list[str], at: datetime, place: int) -> None:
    request_id = new_request_id(round(at.timestamp() * 1000))
    spans = [span_of([month]) for month in months]
    assert [span["first_id"] <= request_id < span["end_id"] for span in spans] == [
        number == place for number in range(3)
    ]
    assert spans[place]["early_id"] <= request_id < spans[place]["late_id"]
    whole = span_of(None)
    assert whole["first_id"] <= request_id < whole["end_id"]
    assert span_of(months) == whole
