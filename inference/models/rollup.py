"""Usage summed up by hour and by day: what reports, invoices and alerts read."""

from django.db import models

from inference.histograms import HistogramField
from tenants.isolation.scoping import ScopedManager
from tenants.models import ApiKey, Project, Tenant

# What a row is the sum of, besides its hour or day; in the order of the key.
OWNERS = ("tenant_id", "project_id", "api_key_id", "model", "adapter", "tier")


class _Rollup(models.Model):
    """Sums over requests by the time of their arrival. Written with the records they sum up, in the
    same transaction, so both always say the same.

    `requests` is the sum of the five outcomes after it. `wasted_tokens` has those of attempts that
    did not end their request, which are not counted in `requests`. Latencies in ms: TTFT of those
    that had a first token; of each such request the median inter-token latency; from arrival
    to end of those that completed.
    """

    is_audited = False

    # Whoever writes here has checked the three against the key that the record names.
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    project = models.ForeignKey(
        Project, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    api_key = models.ForeignKey(
        ApiKey, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    model = models.CharField(max_length=200)
    adapter = models.CharField(max_length=200)
    tier = models.CharField(max_length=40)
    requests = models.PositiveBigIntegerField()
    completed = models.PositiveBigIntegerField()
    cancelled = models.PositiveBigIntegerField()
    refused = models.PositiveBigIntegerField()
    expired = models.PositiveBigIntegerField()
    failed = models.PositiveBigIntegerField()
    prompt_tokens = models.PositiveBigIntegerField()
    cached_tokens = models.PositiveBigIntegerField()
    completion_tokens = models.PositiveBigIntegerField()
    reasoning_tokens = models.PositiveBigIntegerField()
    wasted_tokens = models.PositiveBigIntegerField()
    cost_nanos = models.PositiveBigIntegerField("cost (nano-dollars)")
    ttft_histogram = HistogramField()
    itl_histogram = HistogramField()
    duration_histogram = HistogramField()

    class Meta:
        abstract = True


class UsageRollup(_Rollup):
    """Of an hour (UTC)."""

    pk = models.CompositePrimaryKey(
        "tenant_id", "hour", "project_id", "api_key_id", "model", "adapter", "tier"
    )
    hour = models.DateTimeField()

    objects = ScopedManager["UsageRollup"]()

    class Meta:
        indexes = [models.Index(fields=["hour"], name="usage_rollup_hour")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.hour}"


class DailyUsage(_Rollup):
    """Of a day (UTC)."""

    pk = models.CompositePrimaryKey(
        "tenant_id", "day", "project_id", "api_key_id", "model", "adapter", "tier"
    )
    day = models.DateField()

    objects = ScopedManager["DailyUsage"]()

    class Meta:
        indexes = [models.Index(fields=["day"], name="daily_usage_day")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.day}"
