"""Asking for figures as clients do, and comparing them with what is exact."""

import csv
import io
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from typing import Any, Final, TypeVar

import pytest
from control_plane.web.figures import short_milliseconds
from django.test import Client

from tests.support.figures.direct_sums import TOLERANCE, as_json, asked
from tests.support.figures.html_figures import Figures, figures_of
from tests.support.figures.live_panels import forget_panels
from tests.support.figures.world import DAYS, World

_TODAY: Final = datetime.now(UTC).date()
# A day more than there is: whenever midnight comes, all of the world lies within.
RANGE: Final = {"from": str(_TODAY - timedelta(days=DAYS)), "to": str(_TODAY + timedelta(days=1))}
BY_HOUR: Final = {"from": str(_TODAY - timedelta(days=20)), "to": RANGE["to"]}
_API_NAMES: Final = {"day": "date"}
_Looked = TypeVar("_Looked")


def this_month() -> tuple[date, date]:
    """The days (UTC) of the month so far, and one more."""
    today = datetime.now(UTC).date()
    return today.replace(day=1), today + timedelta(days=1)


def in_one_hour(look: Callable[[], _Looked]) -> tuple[datetime, _Looked]:
    """Look at what depends on the day or the hour: what was seen, and the hour of it."""
    while True:
        hour = _this_hour()
        forget_panels()
        found = look()
        if hour == _this_hour():
            return hour, found


def _this_hour() -> datetime:
    return datetime.now(UTC).replace(minute=0, second=0, microsecond=0)


def same_days_before(today: date) -> tuple[date, date]:
    """The days of the month before, from its first to today's, or to its last where it is
    shorter."""
    [(first, last)] = asked(
        "SELECT (date_trunc('month', day) - interval '1 month')::date,"
        " (day - interval '1 month')::date FROM (SELECT %s::timestamp) AS given(day)",
        [today],
    )
    return first, last


def compared(now: int, before: int) -> str:
    """How a single figure says what it is beside that of the period before."""
    if not before:
        return "nothing before" if now else "as before"
    percent = round(Fraction(100 * (now - before), before))
    if not percent:
        return "as before"
    return f"{abs(percent)} % {'more' if percent > 0 else 'less'} than before"


def days(asked_for: Mapping[str, str]) -> tuple[date, date]:
    return date.fromisoformat(asked_for["from"]), date.fromisoformat(asked_for["to"])


def all_rows(client: Client, address: str, query: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every row of a report, page by page."""
    rows: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        answer = client.get(address, {**query, "limit": 200, **cursor})
        assert answer.status_code == 200, answer.content
        rows += answer.json()["data"]
        if answer.json()["next_cursor"] is None:
            return rows
        cursor = {"cursor": answer.json()["next_cursor"]}


def file_rows(client: Client, address: str, query: Mapping[str, Any]) -> list[dict[str, str]]:
    answer = client.get(address, query)
    assert answer.status_code == 200
    return list(csv.DictReader(io.StringIO(answer.content.decode())))


def by_group(rows: list[dict[str, Any]], *names: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    found = {tuple(row[_API_NAMES.get(name, name)] for name in names): row for row in rows}
    assert len(found) == len(rows)
    return found


def in_json(sums: Mapping[tuple[Any, ...], Any]) -> dict[tuple[Any, ...], Any]:
    return {tuple(map(as_json, key)): row for key, row in sums.items()}


def check_percentiles(told: list[Any], exact: list[float] | None) -> None:
    if exact is None:
        assert told in ([None] * 3, [""] * 3)
        return
    for each, right in zip(told, exact, strict=True):
        assert float(each) == pytest.approx(right, rel=TOLERANCE, abs=0.1)


def page_of(client: Client, address: str, query: Mapping[str, str] | None = None) -> Figures:
    answer = client.get(address, query or {})
    assert answer.status_code == 200
    return figures_of(answer.content.decode())


def is_near(told: str, milliseconds: float | None) -> bool:
    """Whether a duration as pages show it is within a histogram's error of the exact one."""
    if milliseconds is None:
        return told == short_milliseconds(None)
    units = {"ms": 1, "s": 1000, "min": 60_000}
    parts = told.split()
    shown = sum(
        float(amount) * units[unit] for amount, unit in zip(parts[::2], parts[1::2], strict=True)
    )
    return abs(shown - milliseconds) <= TOLERANCE * milliseconds + 0.1


def told_of(world: World, *names: str, tenant_id: Any = None) -> Counter[tuple[Any, ...]]:
    """What gateways told, added up here."""
    sums: Counter[tuple[Any, ...]] = Counter()
    for each in world.refused:
        if tenant_id in (None, each.tenant_id):
            at = datetime.fromtimestamp(each.hour * 3600, UTC)
            row = {
                "day": str(at.date()), "model": each.model, "code": each.code,
                "limit": each.limit, "scope": each.scope, "tenant_id": each.tenant_id,
                "project_id": each.project_id, "api_key_id": each.api_key_id,
            }  # fmt: skip
            sums[tuple(row[name] for name in names)] += each.count
    return sums


def nanos(amount: str) -> int:
    """The nano-dollars of an amount in a file or on a page."""
    digits = amount.replace("$", "").replace(",", "")
    whole, _, fraction = digits.lstrip("-").partition(".")
    amount_nanos = int(whole) * 10**9 + int(fraction.ljust(9, "0"))
    return -amount_nanos if digits.startswith("-") else amount_nanos
