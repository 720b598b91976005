"""What was used and what it cost, aggregated by any dimensions from the daily rollups."""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any, Final

from django.db import models
from django.db.models import Sum

from inference.histograms import Histogram, HistogramField
from inference.models.rollup import DailyUsage
from inference.usage.rollups import COUNTERS, HISTOGRAMS

QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


class Dimension(StrEnum):
    """What sums can be grouped by."""

    DAY = "day"
    TENANT = "tenant"
    PROJECT = "project"
    API_KEY = "api_key"
    MODEL = "model"
    ADAPTER = "adapter"
    TIER = "tier"

    @property
    def column(self) -> str:
        return f"{self}_id" if self in _WITH_ID else self.value


_WITH_ID: Final = (Dimension.TENANT, Dimension.PROJECT, Dimension.API_KEY)


@dataclass(frozen=True, kw_only=True)
class UsageQuery:
    """Days in UTC, both included; what is None is not filtered by."""

    first: date
    last: date
    group_by: tuple[Dimension, ...]
    tenant_id: uuid.UUID | None = None
    project_id: uuid.UUID | None = None
    api_key_id: uuid.UUID | None = None
    model: str | None = None
    adapter: str | None = None
    tier: str | None = None

    def rows(self) -> "models.QuerySet[DailyUsage]":
        filters = {
            name: value
            for name in ("tenant_id", "project_id", "api_key_id", "model", "adapter", "tier")
            if (value := getattr(self, name)) is not None
        }
        return DailyUsage.objects.filter(day__gte=self.first, day__lte=self.last, **filters)


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
    return {
        name: None if (value := histogram.quantile_ms(quantile)) is None else float(f"{value:.3g}")
        for name, quantile in QUANTILES.items()
    }
