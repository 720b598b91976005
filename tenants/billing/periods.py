"""Months, as they are invoiced: of the calendar, in UTC."""

from datetime import UTC, date, datetime, time, timedelta


class BadPeriod(ValueError):
    """Text that names no month."""


def parse_month(text: str) -> date:
    """Parse a month such as `2026-10` to its first day. Raises `BadPeriod`."""
    try:
        parsed = datetime.strptime(text.strip(), "%Y-%m").replace(tzinfo=UTC)
    except ValueError:
        raise BadPeriod(f"a month is like 2026-10, got {text!r}") from None
    return parsed.date()


def month_of(day: date) -> date:
    return day.replace(day=1)


def next_month(period: date) -> date:
    return (period.replace(day=1) + timedelta(days=31)).replace(day=1)


def month_before(period: date) -> date:
    return (period.replace(day=1) - timedelta(days=1)).replace(day=1)


def months_before(period: date, count: int) -> date:
    for _ in range(count):
        period = month_before(period)
    return period


def start_of(period: date) -> datetime:
    return datetime.combine(period, time.min, UTC)


def end_of(period: date) -> datetime:
    """Return the first moment after the month."""
    return start_of(next_month(period))


def last_day(period: date) -> date:
    return next_month(period) - timedelta(days=1)
