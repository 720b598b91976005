"""The moments at which a suite that knows dates is most likely to be wrong."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

# Of the true moment in UTC, the one at which a run begins.
Shift = Callable[[datetime], datetime]

# A run takes minutes: it begins before the end that it is to cross, and is busy when it does.
BEFORE_THE_END = timedelta(minutes=3)


def _in_a_week(now: datetime) -> datetime:
    return now + timedelta(days=7)


def _across_the_month(now: datetime) -> datetime:
    return _next_month(now) - BEFORE_THE_END


def _as_a_month_begins(now: datetime) -> datetime:
    """Yesterday is of another month, an hour ago too."""
    return _next_month(now) + timedelta(minutes=1)


def _across_the_year(now: datetime) -> datetime:
    return datetime(now.year + 1, 1, 1, tzinfo=UTC) - BEFORE_THE_END


def _on_the_leap_day(now: datetime) -> datetime:
    """29 February 2028, or the next one once that is over."""
    year = max(2028, -(-now.year // 4) * 4)
    year = year if now < datetime(year, 3, 1, tzinfo=UTC) else year + 4
    return datetime(year, 2, 29, 12, tzinfo=UTC)


def _before_midnight(now: datetime) -> datetime:
    return _midnight(now) + timedelta(hours=23, minutes=58)


def _next_month(now: datetime) -> datetime:
    return _midnight((now.replace(day=1) + timedelta(days=31)).replace(day=1))


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


SHIFTS: dict[str, Shift] = {
    "week": _in_a_week,
    "month": _across_the_month,
    "month-begins": _as_a_month_begins,
    "year": _across_the_year,
    "leap-day": _on_the_leap_day,
    "midnight": _before_midnight,
}
