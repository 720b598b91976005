"""What invoices are made of, for tenants.billing: sums of the daily rollups, how the tiers kept
their promises, and the records behind a line."""

import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from typing import Any

from django.db import connection
from django.db.models import QuerySet, Sum
from django.db.models.functions import TruncMonth

from inference.models import DailyUsage, UsageRecord, UsageRollup
from tenants.billing.invoicing.usage_source import (
    Attainment,
    Measured,
    Targets,
    UsageGroup,
    UsageLine,
)
from tenants.billing.models import UsageFilter
from tenants.billing.periods import end_of, start_of

_COUNTED = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens", "cost_nanos")

# What is nobody's fault but the service's: nobody took the request in time, or it failed.
_DOWN = f"""
SELECT tenant_id, tier, sum(share)
FROM (
    SELECT tenant_id, tier, hour,
        sum(failed + expired)::float8 / nullif(sum(requests), 0) AS share
    FROM {UsageRollup._meta.db_table}
    WHERE tenant_id = ANY (%(tenants)s) AND hour >= %(first)s AND hour < %(end)s
    GROUP BY tenant_id, tier, hour
) AS hours
GROUP BY tenant_id, tier
"""  # noqa: S608 - a name of ours

_IN_TIME = """
SELECT tenant_id, tier, count(ttft_ms), count(*) FILTER (WHERE ttft_ms <= ttft_target),
    count(itl_p95_ms), count(*) FILTER (WHERE itl_p95_ms <= itl_target)
FROM ({records}) AS records
JOIN unnest(%s::text[], %s::float8[], %s::float8[]) AS promised(tier_name, ttft_target, itl_target)
    ON tier_name = tier
GROUP BY tenant_id, tier
"""


class RolledUpUsage:
    """The source that `tenants.billing` asks."""

    def lines(
        self, tenant_ids: Sequence[uuid.UUID], first: date, last: date
    ) -> Iterable[UsageLine]:
        rows = (
            DailyUsage.objects.filter(tenant__in=tenant_ids, day__gte=first, day__lte=last)
            .order_by()
            .annotate(month=TruncMonth("day"))
            .values_list("tenant_id", "month", "project_id", "model", "tier", "adapter")
            .annotate(*(Sum(name) for name in _COUNTED))
        )
        for tenant_id, month, project_id, model, tier, adapter, *sums in rows:
            requests, prompt, cached, completion, nanos = map(int, sums)
            yield UsageLine(
                tenant_id=tenant_id,
                period=month,
                project_id=project_id,
                model=model,
                tier=tier,
                adapter=adapter,
                requests=requests,
                prompt_tokens=prompt,
                cached_tokens=cached,
                completion_tokens=completion,
                cost_nanos=nanos,
            )

    def attainment(
        self, tenant_ids: Sequence[uuid.UUID], period: date, targets: dict[str, Targets]
    ) -> Iterable[Attainment]:
        """Return the time to first token of each request that had one, and the 95th percentile of
        each request's inter-token latency; of uptime, each hour's share of requests that did not
        fail, an hour without any counting as up."""
        first, end = start_of(period), end_of(period)
        hours = (end - first).total_seconds() / 3600
        down = {
            (tenant_id, tier): share for tenant_id, tier, share in _down(tenant_ids, first, end)
        }
        in_time = {row[:2]: row[2:] for row in _in_time(tenant_ids, first, end, targets)}
        for tenant_id, tier in in_time.keys() | down.keys():
            if tier not in targets:
                continue
            ttft, ttft_kept, itl, itl_kept = in_time.get((tenant_id, tier), (0, 0, 0, 0))
            yield Attainment(
                tenant_id=tenant_id,
                tier=tier,
                ttft=Measured(kept=ttft_kept, total=ttft),
                inter_token=Measured(kept=itl_kept, total=itl),
                uptime=Measured(kept=hours - down.get((tenant_id, tier), 0), total=hours),
            )

    def cost_recorded_after(self, group: UsageGroup, moment: datetime) -> int:
        of_month = UsageRecord.objects.arrived_between(start_of(group.period), end_of(group.period))
        records = of_month.filter(
            tenant=group.tenant_id,
            project=group.project_id,
            model=group.model,
            tier=group.tier,
            adapter=group.adapter,
            recorded_at__gt=moment,
        )
        return int(records.aggregate(nanos=Sum("cost_nanos", default=0))["nanos"])


def records_behind(wanted: UsageFilter) -> QuerySet[UsageRecord]:
    """Return exactly the records that a line of an invoice sums up."""
    found = UsageRecord.objects.arrived_between(wanted.first, wanted.end).filter(
        tenant=wanted.tenant_id,
        project=wanted.project_id,
        model=wanted.model,
        tier=wanted.tier,
        adapter=wanted.adapter,
        recorded_at__lte=wanted.recorded_until,
    )
    if wanted.recorded_after is not None:
        found = found.filter(recorded_at__gt=wanted.recorded_after)
    return found


def _down(
    tenant_ids: Sequence[uuid.UUID], first: datetime, end: datetime
) -> Iterator[tuple[uuid.UUID, str, float]]:
    with connection.cursor() as cursor:
        cursor.execute(_DOWN, {"tenants": list(tenant_ids), "first": first, "end": end})
        for tenant_id, tier, share in cursor.fetchall():
            yield tenant_id, tier, share or 0.0


def _in_time(
    tenant_ids: Sequence[uuid.UUID], first: datetime, end: datetime, targets: dict[str, Targets]
) -> Iterator[tuple[Any, ...]]:
    records = (
        UsageRecord.objects.arrived_between(first, end)
        .filter(tenant__in=tenant_ids)
        .order_by()
        .values("tenant_id", "tier", "ttft_ms", "itl_p95_ms")
    )
    sql, parameters = records.query.sql_with_params()
    with connection.cursor() as cursor:
        cursor.execute(
            _IN_TIME.format(records=sql),
            [
                *parameters,
                list(targets),
                [target.ttft_ms for target in targets.values()],
                [target.inter_token_ms for target in targets.values()],
            ],
        )
        yield from cursor.fetchall()
