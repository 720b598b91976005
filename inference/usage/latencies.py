"""How soon each tenant was answered, for operators, from the sums of tenants: of whole days from
those by day, of other hours from those by hour."""

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final

from django.core.exceptions import EmptyResultSet
from django.db import connection, models

from inference.histograms import Histogram
from inference.models.rollup import DailyTenantUsage, DailyUsage, UsageRollup
from inference.usage.rollups import HISTOGRAMS

_DAY: Final = timedelta(days=1)
_INSTANT: Final = timedelta(microseconds=1)


@dataclass(frozen=True, kw_only=True)
class TenantLatencies:
    """`rows` of those with most requests, the most first: `tenant_id`, `requests` and each of
    `HISTOGRAMS`. `tenants`: how many there are in all."""

    rows: Sequence[Mapping[str, Any]]
    tenants: int


def latency_by_tenant(
    begin: datetime,
    end: datetime,
    *,
    most: int,
    tenant_id: uuid.UUID | None = None,
    model: str | None = None,
    tier: str | None = None,
) -> TenantLatencies:
    """Return the latencies of the tenants with most requests that arrived in the hours (UTC) from
    `begin` to before `end`; what is None is not filtered by. These sums know no pools. Runs in an
    `operator_scope`.

    Histograms are added up of those that are returned alone, which is most of the work.
    """
    given = {"tenant_id": tenant_id, "model": model, "tier": tier}
    filters = {name: each for name, each in given.items() if each is not None}
    asked = _summed(_sources(begin, end, filters), ["requests"])
    requests = {tenant: int(sums[0]) for tenant, *sums in asked if sums[0]}
    largest = sorted(requests, key=lambda tenant: (-requests[tenant], tenant))[:most]
    of_these = _sources(begin, end, {**filters, "tenant_id__in": largest})
    sums = {
        tenant: dict(zip(HISTOGRAMS, map(Histogram.from_number, numbers), strict=True))
        for tenant, *numbers in _summed(of_these, HISTOGRAMS)
    }
    return TenantLatencies(
        rows=[{"tenant_id": each, "requests": requests[each], **sums[each]} for each in largest],
        tenants=len(requests),
    )


def _summed(
    sources: "Iterable[models.QuerySet[Any, Any]]", columns: Sequence[str]
) -> Sequence[tuple[Any, ...]]:
    """Return each tenant's id and the sums of its rows in all sources, added up by PostgreSQL: to
    read a number of many digits takes longer than to add it."""
    first, *others = (rows.order_by().values("tenant_id", *columns) for rows in sources)
    try:
        sql, parameters = first.union(*others, all=True).query.sql_with_params()
    except EmptyResultSet:
        return []
    sums = ", ".join(f"sum({column})" for column in columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT tenant_id, {sums} FROM ({sql}) AS rows GROUP BY tenant_id",  # noqa: S608 - ours
            parameters,
        )
        found: Sequence[tuple[Any, ...]] = cursor.fetchall()
    return found


def _sources(
    begin: datetime, end: datetime, filters: Mapping[str, Any]
) -> "Iterator[models.QuerySet[Any, Any]]":
    """Yield the rows that count: those by day of whole days, which know models only where that is
    asked for, by hour of what is left at both ends."""
    first, last = _midnight(begin + _DAY - _INSTANT), _midnight(end)
    if first >= last:
        yield UsageRollup.objects.filter(hour__gte=begin, hour__lt=end, **filters)
        return
    days: Any = DailyUsage if "model" in filters else DailyTenantUsage
    yield days.objects.filter(day__gte=first.date(), day__lt=last.date(), **filters)
    for since, until in ((begin, first), (last, end)):
        if since < until:
            yield UsageRollup.objects.filter(hour__gte=since, hour__lt=until, **filters)


def _midnight(moment: datetime) -> datetime:
    """Return when its day (UTC) began."""
    return datetime.combine(moment.astimezone(UTC).date(), time.min, UTC)
