"""What invoices are made of, for tenants.billing: sums of the daily rollups, how promises were
kept, and the records behind a line."""

import uuid
from collections.abc import Iterable, Sequence
from datetime import date, datetime

from django.db.models import QuerySet, Sum
from django.db.models.functions import TruncMonth

from inference.models import DailyUsage, UsageRecord
from inference.usage.attainment import attainment
from inference.usage.rating.storage_hours import storage_lines
from tenants.billing.invoicing.usage_source import (
    Attainment,
    StorageLine,
    UsageGroup,
    UsageLine,
)
from tenants.billing.models import UsageFilter
from tenants.billing.periods import end_of, start_of

_COUNTED = ("requests", "prompt_tokens", "cached_tokens", "completion_tokens", "cost_nanos")


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

    def storage(
        self, tenant_ids: Sequence[uuid.UUID], first: date, last: date
    ) -> Iterable[StorageLine]:
        return storage_lines(tenant_ids, first, last)

    def attainment(self, tenant_ids: Sequence[uuid.UUID], period: date) -> Iterable[Attainment]:
        return attainment(tenant_ids, start_of(period), end_of(period))

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
