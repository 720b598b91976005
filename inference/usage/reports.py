"""What was used and what it cost, aggregated by any dimensions from the rollups: daily, or hourly,
and those of pools where all tenants are asked for."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from enum import StrEnum
from typing import Any, Final

from django.db import models
from django.db.models import F, Sum, Value
from django.db.models.functions import Coalesce, TruncDate

from inference.histograms import Histogram, HistogramField
from inference.models.rollup import (
    COUNTERS,
    DailyPoolUsage,
    DailyTenantUsage,
    DailyUsage,
    ErrorRollup,
    PoolUsage,
    UsageRollup,
)
from inference.usage.pools.rebuild import are_complete
from inference.usage.rollups import HISTOGRAMS
from tenants.isolation.scoping import current_scope

QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
# In place of the creator of a key that nobody's account made: rows are in order by it, and nothing
# comes before or after null.
NOBODY: Final = uuid.UUID(int=0)


class Granularity(StrEnum):
    """Periods of which sums are kept."""

    DAY = "day"
    HOUR = "hour"


class Dimension(StrEnum):
    """What sums can be grouped by. By day or by hour, as the granularity is."""

    DAY = "day"
    HOUR = "hour"
    TENANT = "tenant"
    PROJECT = "project"
    API_KEY = "api_key"
    CREATED_BY = "created_by"
    MODEL = "model"
    ADAPTER = "adapter"
    TIER = "tier"
    POOL = "pool"
    SERVICE_CLASS = "service_class"

    @property
    def column(self) -> str:
        return f"{self}_id" if self in _WITH_ID else self.value


_WITH_ID: Final = (Dimension.TENANT, Dimension.PROJECT, Dimension.API_KEY, Dimension.CREATED_BY)
PERIODS: Final = frozenset({Dimension.DAY, Dimension.HOUR})
# What sums over all tenants do not know, and what they alone know.
OF_TENANTS: Final = frozenset({*_WITH_ID, Dimension.ADAPTER})
OF_POOLS: Final = frozenset({Dimension.POOL, Dimension.SERVICE_CLASS})
# What sums over all projects, keys and models of a tenant know.
_OF_WHOLE_TENANTS: Final = frozenset({Dimension.DAY, Dimension.TENANT, Dimension.TIER})


@dataclass(frozen=True, kw_only=True)
class UsageQuery:
    """Days in UTC, both included; what is None is not filtered by. `created_by_id` is who created
    the key. A pool or a service class can be asked for over all tenants alone, by operators."""

    first: date
    last: date
    group_by: tuple[Dimension, ...]
    granularity: Granularity = Granularity.DAY
    tenant_id: uuid.UUID | None = None
    project_id: uuid.UUID | None = None
    api_key_id: uuid.UUID | None = None
    created_by_id: uuid.UUID | None = None
    model: str | None = None
    adapter: str | None = None
    tier: str | None = None
    pool: str | None = None
    service_class: str | None = None

    @property
    def narrowed(self) -> dict[Dimension, Any]:
        """Return what is filtered by."""
        columns = {each: each.column for each in Dimension if each not in PERIODS}
        values = {each: getattr(self, column) for each, column in columns.items()}
        return {each: value for each, value in values.items() if value is not None}

    @property
    def dimensions(self) -> frozenset[Dimension]:
        return frozenset({*self.group_by, *self.narrowed})

    def rows(self) -> "models.QuerySet[Any, Any]":
        """Return the rows of the sums that know all that is asked for, in the fewest rows."""
        if self.is_of_pools():
            tables: tuple[Any, Any] = (DailyPoolUsage, PoolUsage)
        elif self.dimensions <= _OF_WHOLE_TENANTS:
            tables = (DailyTenantUsage, UsageRollup)
        else:
            tables = (DailyUsage, UsageRollup)
        days, hours = (table._default_manager.all() for table in tables)
        if self.granularity is Granularity.HOUR:
            return self._narrow(self._of_time(hours))
        return self._narrow(days.filter(day__gte=self.first, day__lte=self.last))

    def errors(self) -> "models.QuerySet[Any, Any]":
        """Return rows of the sums of errors, with `day`."""
        rows = self._of_time(ErrorRollup.objects.all())
        return self._narrow(rows.annotate(day=TruncDate("hour", tzinfo=UTC)))

    def is_of_pools(self) -> bool:
        """Return whether the sums over all tenants answer it, which are complete in its days."""
        scope = current_scope()
        if scope is None or not scope.is_operator or self.dimensions & OF_TENANTS:
            return False
        return bool(self.dimensions & OF_POOLS) or are_complete(_midnight(self.first))

    def _of_time(self, rows: "models.QuerySet[Any, Any]") -> "models.QuerySet[Any, Any]":
        last = datetime.combine(self.last, time.max, UTC)
        return rows.filter(hour__gte=_midnight(self.first), hour__lte=last)

    def _narrow(self, rows: "models.QuerySet[Any, Any]") -> "models.QuerySet[Any, Any]":
        if Dimension.CREATED_BY in self.dimensions:
            creator = Coalesce(F("api_key__created_by_id"), Value(NOBODY))
            rows = rows.annotate(created_by_id=creator)
        return rows.filter(**{each.column: value for each, value in self.narrowed.items()})


def aggregate(query: UsageQuery, *, with_latencies: bool) -> "models.QuerySet[Any, Any]":
    """Return a row for each group, of its columns, `COUNTERS` and, if wanted, `HISTOGRAMS`."""
    histograms = HISTOGRAMS if with_latencies else ()
    groups: models.QuerySet[Any, Any] = (
        query.rows()
        .order_by()
        .values(*(dimension.column for dimension in query.group_by))
        .annotate(
            **{name: Sum(name) for name in COUNTERS},
            **{name: Sum(name, output_field=HistogramField()) for name in histograms},
        )
    )
    return groups


def aggregate_errors(query: UsageQuery) -> "models.QuerySet[Any, Any]":
    """Return a row for each group and error code: its columns, `code` and `requests`."""
    columns = (*(dimension.column for dimension in query.group_by), "code")
    groups: models.QuerySet[Any, Any] = (
        query.errors().order_by().values(*columns).annotate(requests=Sum("requests"))
    )
    return groups


def total_cost_nanos(query: UsageQuery) -> int:
    return int(query.rows().aggregate(nanos=Sum("cost_nanos"))["nanos"] or 0)


def totals(query: UsageQuery) -> dict[str, int]:
    """Return the sums of all `COUNTERS`, over what the query groups by."""
    sums = query.rows().aggregate(**{name: Sum(name) for name in COUNTERS})
    return {name: int(sums[name] or 0) for name in COUNTERS}


def has_completed_any() -> bool:
    """Return whether a request of the open scope was ever answered."""
    return DailyUsage.objects.filter(completed__gt=0).exists()


def counts(row: Mapping[str, Any], names: Iterable[str] = COUNTERS) -> dict[str, int]:
    # PostgreSQL sums bigints to numeric.
    return {name: int(row[name]) for name in names}


def quantiles(histogram: Histogram) -> dict[str, float | None]:
    """Return quantiles in ms, to three digits: the error of a histogram is larger."""
    found = histogram.quantiles_ms(list(QUANTILES.values()))
    return {
        name: None if value is None else float(f"{value:.3g}")
        for name, value in zip(QUANTILES, found, strict=True)
    }


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)
