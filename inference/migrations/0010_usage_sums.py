from django.db import migrations, models

from inference.histograms import HistogramField
from inference.migrations._usage import COUNTERS, HISTOGRAMS, MEASURES, OWNERS
from tenants.isolation.row_security import BuildTenantWall, LetWebOnly
from tenants.migrations._schema import columns

# What rows of before do not know.
NEWLY_KEPT = {
    "queue_histogram": HistogramField(null=True, default=None, editable=False),
    "ttft_in_time": models.PositiveBigIntegerField(null=True),
    "itl_in_time": models.PositiveBigIntegerField(null=True),
}
POOL_SUMS = {
    **{name: MEASURES[name] for name in (*COUNTERS, "cost_nanos", *HISTOGRAMS)},
    **NEWLY_KEPT,
    "pool": models.CharField(max_length=100),
    "model": models.CharField(max_length=200),
    "tier": models.CharField(max_length=40),
    "service_class": models.CharField(max_length=40),
}


def key(*names: str) -> models.CompositePrimaryKey:
    return models.CompositePrimaryKey(
        *names, blank=True, editable=False, primary_key=True, serialize=False
    )


POOL_USAGE = migrations.CreateModel(
    "PoolUsage",
    columns(
        pk=key("hour", "pool", "model", "tier", "service_class"),
        hour=models.DateTimeField(),
        **POOL_SUMS,
    ),
)
DAILY_POOL_USAGE = migrations.CreateModel(
    "DailyPoolUsage",
    columns(
        pk=key("day", "pool", "model", "tier", "service_class"), day=models.DateField(), **POOL_SUMS
    ),
)
POOL_TENANT_USAGE = migrations.CreateModel(
    "PoolTenantUsage",
    columns(
        pk=key("hour", "pool", "tenant_id"),
        hour=models.DateTimeField(),
        pool=models.CharField(max_length=100),
        tenant=OWNERS["tenant"],
        requests=models.PositiveBigIntegerField(),
        prompt_tokens=models.PositiveBigIntegerField(),
        completion_tokens=models.PositiveBigIntegerField(),
        cost_nanos=models.PositiveBigIntegerField("cost (nano-dollars)"),
    ),
)
ERROR_ROLLUP = migrations.CreateModel(
    "ErrorRollup",
    columns(
        pk=key("tenant_id", "hour", "project_id", "api_key_id", "model", "adapter", "tier", "code"),
        **OWNERS,
        model=models.CharField(max_length=200),
        adapter=models.CharField(max_length=200),
        tier=models.CharField(max_length=40),
        hour=models.DateTimeField(),
        code=models.CharField(max_length=80),
        requests=models.PositiveBigIntegerField(),
    ),
    options={"indexes": [models.Index(fields=["hour"], name="error_rollup_hour")]},
)


class Migration(migrations.Migration):
    dependencies = [("tenants", "0006_pinned_adapters"), ("inference", "0009_request_log")]

    operations = [
        *(
            migrations.AddField(model, name, field)
            for model in ("UsageRollup", "DailyUsage")
            for name, field in NEWLY_KEPT.items()
        ),
        POOL_USAGE,
        DAILY_POOL_USAGE,
        POOL_TENANT_USAGE,
        ERROR_ROLLUP,
        *map(BuildTenantWall, ("PoolTenantUsage", "ErrorRollup")),
        *(LetWebOnly(model, "SELECT") for model in ("PoolTenantUsage", "ErrorRollup")),
        *map(LetWebOnly, ("PoolUsage", "DailyPoolUsage")),
    ]
