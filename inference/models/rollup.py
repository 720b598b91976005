"""Usage summed up by hour and by day: what reports, invoices and alerts read."""

from typing import Final

from django.db import models

from gpu_workers.protocol.messages import Outcome
from inference.histograms import HistogramField
from tenants.isolation.scoping import ScopedManager
from tenants.models import ApiKey, Project, Tenant

# The columns of `Counters`.
COUNTERS: Final = (
    "requests",
    *(outcome.value for outcome in Outcome),
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "reasoning_tokens",
    "wasted_tokens",
    "cost_nanos",
)
# What a row is the sum of, besides its hour or day; in the order of the key.
OWNERS = ("tenant_id", "project_id", "api_key_id", "model", "adapter", "tier")
POOL_OWNERS = ("pool", "model", "tier", "service_class")


class Counters(models.Model):
    """Sums over requests by the time of their arrival. Written with the records they sum up, in the
    same transaction, so both always say the same.

    `requests` is the sum of the five outcomes after it. `wasted_tokens` has those of attempts that
    did not end their request, which are not counted in `requests`.
    """

    is_audited = False

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

    class Meta:
        abstract = True


class _Sums(Counters):
    """Latencies in ms: TTFT of those that had a first token; of each such request the median
    inter-token latency; from arrival to end of those that completed; in the queue, of those that a
    worker took. `ttft_in_time` and `itl_in_time` count requests that kept their tier's targets as
    they were when the request was recorded, the latter by its 95th percentile, as invoices do.

    `requests_owed` are those whose tier's promises were owed, `failed_owed` those of them that
    failed or expired, `ttft_owed` and `itl_owed` those that could be measured, the last ones those
    that kept the targets. Columns that may be None are so in rows of before they were kept.
    """

    ttft_histogram = HistogramField()
    itl_histogram = HistogramField()
    duration_histogram = HistogramField()
    queue_histogram = HistogramField(null=True, default=None)
    ttft_in_time = models.PositiveBigIntegerField(null=True)
    itl_in_time = models.PositiveBigIntegerField(null=True)
    # Without a check that they are positive, for which PostgreSQL would read all rows there are.
    requests_owed = models.BigIntegerField(null=True)
    failed_owed = models.BigIntegerField(null=True)
    ttft_owed = models.BigIntegerField(null=True)
    ttft_owed_in_time = models.BigIntegerField(null=True)
    itl_owed = models.BigIntegerField(null=True)
    itl_owed_in_time = models.BigIntegerField(null=True)

    class Meta:
        abstract = True


class _Owned(models.Model):
    """Whoever writes here has checked the three against the key that the record names."""

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

    class Meta:
        abstract = True


class UsageRollup(_Owned, _Sums):
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


class DailyUsage(_Owned, _Sums):
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


class DailyTenantUsage(_Sums):
    """Of a tenant's usage in a tier on a day (UTC), over its projects, keys and models.

    Of each hour of the day: `requests_by_hour` and, of these, `down_by_hour` that failed or
    expired. The hours stand as the buckets of a histogram do.
    """

    pk = models.CompositePrimaryKey("tenant_id", "day", "tier")
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    day = models.DateField()
    tier = models.CharField(max_length=40)
    requests_by_hour = HistogramField()
    down_by_hour = HistogramField()

    objects = ScopedManager["DailyTenantUsage"]()

    class Meta:
        indexes = [models.Index(fields=["day"], name="daily_tenant_usage_day")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.day} {self.tier}"


class ErrorRollup(_Owned):
    """How many requests of an hour (UTC) ended with an error, by its code. Written as the sums
    are."""

    is_audited = False

    pk = models.CompositePrimaryKey(
        "tenant_id", "hour", "project_id", "api_key_id", "model", "adapter", "tier", "code"
    )
    hour = models.DateTimeField()
    code = models.CharField(max_length=80)
    requests = models.PositiveBigIntegerField()

    objects = ScopedManager["ErrorRollup"]()

    class Meta:
        indexes = [models.Index(fields=["hour"], name="error_rollup_hour")]

    def __str__(self) -> str:
        return f"{self.tenant_id} {self.hour} {self.code}"


class _PoolSums(_Sums):
    """Sums over all tenants, for operators alone. A wasted attempt counts in the class that its
    tier had then."""

    pool = models.CharField(max_length=100)
    model = models.CharField(max_length=200)
    tier = models.CharField(max_length=40)
    service_class = models.CharField(max_length=40)

    class Meta:
        abstract = True


class PoolUsage(_PoolSums):
    """Of an hour (UTC), over all tenants."""

    pk = models.CompositePrimaryKey("hour", "pool", "model", "tier", "service_class")
    hour = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.pool} {self.hour}"


class DailyPoolUsage(_PoolSums):
    """Of a day (UTC), over all tenants."""

    pk = models.CompositePrimaryKey("day", "pool", "model", "tier", "service_class")
    day = models.DateField()

    def __str__(self) -> str:
        return f"{self.pool} {self.day}"


class PoolTenantUsage(models.Model):
    """What a tenant used of a pool in an hour (UTC): what the hour's cost is dealt out by."""

    is_audited = False

    pk = models.CompositePrimaryKey("hour", "pool", "tenant_id")
    hour = models.DateTimeField()
    pool = models.CharField(max_length=100)
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    requests = models.PositiveBigIntegerField()
    prompt_tokens = models.PositiveBigIntegerField()
    completion_tokens = models.PositiveBigIntegerField()
    cost_nanos = models.PositiveBigIntegerField("cost (nano-dollars)")

    objects = ScopedManager["PoolTenantUsage"]()

    def __str__(self) -> str:
        return f"{self.pool} {self.hour} {self.tenant_id}"


class DealtDay(models.Model):
    """A day (UTC) whose GPU costs are dealt out to tenants. `source` is the digest of what from:
    with another one the day's rows are out of date."""

    is_audited = False

    day = models.DateField(primary_key=True)
    source = models.CharField(max_length=64)

    def __str__(self) -> str:
        return f"{self.day}"


class DealtCost(models.Model):
    """What a tenant used on a `DealtDay`, paid for that, and had dealt out to it."""

    is_audited = False

    pk = models.CompositePrimaryKey("day", "tenant_id")
    day = models.DateField()
    tenant = models.ForeignKey(
        Tenant, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False
    )
    tokens = models.PositiveBigIntegerField()
    revenue_nanos = models.PositiveBigIntegerField()
    dealt_nanos = models.PositiveBigIntegerField()

    objects = ScopedManager["DealtCost"]()

    def __str__(self) -> str:
        return f"{self.day} {self.tenant_id}"
