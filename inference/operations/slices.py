"""Slices of usage for fsck: months, by when requests were admitted, and tenants."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from django.utils import timezone

from inference.usage.partitions import month_of, months_later, months_present
from tenants.fsck import tenant_slices

# Before the first and after the last month.
_EVER: Final = "-infinity"
_NEVER: Final = "infinity"
_DAY: Final = timedelta(days=1)


def month_slices() -> list[str]:
    """Return the months that usage is kept of, as `first/end`, its first day and that of the next;
    the first has all that was before it, the last all that comes after."""
    present = months_present() or {month_of(timezone.now())}
    edges, last = [], max(present)
    month = months_later(min(present), 1)
    while month <= last:
        edges.append(month.isoformat())
        month = months_later(month, 1)
    return [f"{first}/{end}" for first, end in pairwise([_EVER, *edges, _NEVER])]


def span_of(slices: Sequence[str] | None) -> Mapping[str, Any]:
    """Return parameters for statements about months that follow one another, or for ever: `first`
    and `end`, days; `first_id` and `end_id`, request ids made then; `early_id` and `late_id`, those
    of a day before and after, for what has a time beside its id."""
    spans = sorted(each.split("/") for each in slices or [f"{_EVER}/{_NEVER}"])
    first, end = spans[0][0], spans[-1][1]
    return {
        "first": first,
        "end": end,
        "first_id": _id_of(first, 0),
        "end_id": _id_of(end, 0),
        "early_id": _id_of(first, -1),
        "late_id": _id_of(end, 1),
    }


def tenants_of(slices: Sequence[str] | None) -> Mapping[str, Any]:
    """Return the parameter `tenants`: these, or all."""
    return {"tenants": list(tenant_slices() if slices is None else slices)}


def _id_of(day: str, days_later: int) -> str:
    if day == _EVER:
        return "0" * 32
    if day == _NEVER:
        return "f" * 32
    moment = datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC)
    milliseconds = int((moment + days_later * _DAY).timestamp() * 1000)
    return f"{milliseconds:012x}" + "0" * 20
