"""A tenant's own figures in Prometheus' text: what it used since the month (UTC) began, how soon it
was answered, and how it stands against its limits.

What is counted begins anew with each month; Prometheus takes that for a restart, and `rate` and
`increase` stay right. Nothing is of anybody else's, and no label is what a client wrote: models,
adapters, tiers and limits are on record.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gpu_workers.protocol.messages import Outcome
from gpu_workers.protocol.policy import LimitName
from inference.admission.limits import IN_NANOS, LimitStatus
from inference.histograms import BUCKETS, GROWTH, LOWEST_MS, Histogram, value_of
from inference.operations.limit_use import use_of_quotas, use_of_tier
from inference.usage.reports import Dimension, UsageQuery, aggregate
from tenants.models import Quota, Tenant

# More quotas than that are seen by the API alone.
MAX_QUOTAS: Final = 500
_GROUP_BY: Final = (Dimension.MODEL, Dimension.ADAPTER, Dimension.TIER)
_LABELS: Final = [dimension.value for dimension in _GROUP_BY]
_TOKENS: Final = {
    "prompt": "prompt_tokens",
    "cached": "cached_tokens",
    "completion": "completion_tokens",
    "reasoning": "reasoning_tokens",
    "wasted": "wasted_tokens",
}
_LATENCIES: Final = {
    "ttft_histogram": ("time_to_first_token", "From arrival to the first token."),
    "itl_histogram": ("inter_token", "Median inter-token latency of each request."),
    "duration_histogram": ("end_to_end", "From arrival to the end; of requests that completed."),
}
# Every seventh bucket of ours, about a factor of two: their bounds are ours, so counts are exact.
_BOUNDS: Final = range(21, BUCKETS, 7)
_HIGHEST_SECONDS: Final = 600.0


def tenant_metrics(tenant: Tenant, now: datetime | None = None) -> bytes:
    """Return them. Runs in the tenant's scope; limits are left out while nobody knows their use."""
    registry = CollectorRegistry()
    registry.register(_Figures(tenant, (now or datetime.now(UTC)).date()))
    return generate_latest(registry)


class _Figures(Collector):
    def __init__(self, tenant: Tenant, today: date) -> None:
        self._tenant = tenant
        self._today = today

    def collect(self) -> Iterator[Metric]:
        query = UsageQuery(
            first=self._today.replace(day=1),
            last=self._today,
            group_by=_GROUP_BY,
            tenant_id=self._tenant.pk,
        )
        rows = list(aggregate(query, with_latencies=True))
        yield from _use(rows)
        yield from _latencies(rows)
        yield from _limits(self._tenant)


def _use(rows: list[dict[str, Any]]) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "penstock_tenant_requests",
        "Requests this month by how they ended.",
        labels=[*_LABELS, "outcome"],
    )
    tokens = CounterMetricFamily(
        "penstock_tenant_tokens",
        "Tokens this month. Cached ones are part of prompts, reasoning ones of completions; wasted "
        "ones are charged to nobody.",
        labels=[*_LABELS, "kind"],
    )
    cost = CounterMetricFamily(
        "penstock_tenant_cost_dollars", "What they cost this month.", labels=_LABELS
    )
    for row in rows:
        labels = [row[label] for label in _LABELS]
        for outcome in Outcome:
            requests.add_metric([*labels, outcome.value], float(row[outcome.value]))
        for kind, column in _TOKENS.items():
            tokens.add_metric([*labels, kind], float(row[column]))
        cost.add_metric(labels, int(row["cost_nanos"]) / 1e9)
    yield requests
    yield tokens
    yield cost


def _latencies(rows: list[dict[str, Any]]) -> Iterator[Metric]:
    for column, (name, about) in _LATENCIES.items():
        family = HistogramMetricFamily(
            f"penstock_tenant_{name}_seconds", f"{about} This month.", labels=_LABELS
        )
        for row in rows:
            histogram: Histogram = row[column]
            buckets = [(str(bound), float(count)) for bound, count in _cumulated(histogram)]
            # Within the histogram's error: the values themselves are not kept.
            total = sum(value_of(at) * count for at, count in histogram.counts.items()) / 1000
            family.add_metric([row[label] for label in _LABELS], buckets, total)
        yield family


def _cumulated(histogram: Histogram) -> Iterator[tuple[float | str, int]]:
    """Give the upper bound of each bucket in seconds, and how many are not above it."""
    for last in _BOUNDS:
        bound = LOWEST_MS * GROWTH**last / 1000
        if bound > _HIGHEST_SECONDS:
            break
        yield (
            float(f"{bound:.6g}"),
            sum(count for bucket, count in histogram.counts.items() if bucket <= last),
        )
    yield "+Inf", histogram.total


def _limits(tenant: Tenant) -> Iterator[Metric]:
    labels = ["scope", "limit", "project_id", "api_key_id"]
    value = GaugeMetricFamily(
        "penstock_tenant_limit",
        "Each limit: requests, sequences, tokens or dollars.",
        labels=labels,
    )
    used = GaugeMetricFamily("penstock_tenant_limit_used", "What is used of it now.", labels=labels)
    _, of_tier = use_of_tier(tenant)
    quotas = list(Quota.objects.select_related("api_key", "project").order_by("pk")[:MAX_QUOTAS])
    of_quotas = use_of_quotas(tenant, quotas)
    if of_tier is None or of_quotas is None:
        return
    stated = [(["tier", status.limit.name.value, "", ""], status) for status in of_tier]
    for quota, status in zip(quotas, of_quotas, strict=True):
        owner = [str(quota.project_id or ""), str(quota.api_key_id or "")]
        stated.append(([quota.scope, quota.limit, *owner], status))
    for names, status in stated:
        value.add_metric(names, _shown(status, status.limit.value))
        used.add_metric(names, _shown(status, status.used))
    yield value
    yield used


def _shown(status: LimitStatus, amount: int) -> float:
    return amount / 1e9 if LimitName(status.limit.name) in IN_NANOS else float(amount)
