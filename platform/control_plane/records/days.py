"""The days of a report, in UTC, both included."""

from datetime import date, timedelta
from typing import Final

from inference.errors import InvalidRequest
from inference.usage.reports import Granularity

_DEFAULT_DAYS: Final = 30
_MAX_DAYS: Final = 366
_MAX_DAYS_OF_HOURS: Final = 31


def days_of(
    first: date | None, last: date, granularity: str = Granularity.DAY
) -> tuple[date, date]:
    """Return the days of a report, both included. Raises `InvalidRequest` about `from`."""
    first = first or max(date.min, last - min(timedelta(_DEFAULT_DAYS - 1), last - date.min))
    if first > last:
        raise InvalidRequest("'from' must not be after 'to'.", param="from")
    days = (last - first).days + 1
    if granularity == Granularity.HOUR and days > _MAX_DAYS_OF_HOURS:
        raise InvalidRequest(
            f"By the hour ask for at most {_MAX_DAYS_OF_HOURS} days at once. Hours are kept as "
            "long as days.",
            param="from",
        )
    if days > _MAX_DAYS:
        raise InvalidRequest(f"Ask for at most {_MAX_DAYS} days at once.", param="from")
    return first, last
