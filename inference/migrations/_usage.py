"""Usage records by month, what was wasted, their sums, engines' counters, the quarantine."""

from typing import Any

from django.db import migrations, models
from django.db.models import F
from django.db.models.functions import MD5
from django.utils import timezone

from inference.histograms import Histogram, HistogramField
from tenants.migrations._schema import AUTO_KEY, SERIAL_KEY, columns, pairs


class CreatePartitionedModel(migrations.CreateModel):
    """Partition the table by ranges of its primary key; `partitions.sql` makes the partitions."""

    def database_forwards(
        self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any
    ) -> None:
        key = to_state.apps.get_model(app_label, self.name)._meta.pk.column
        schema_editor.sql_create_table += f" PARTITION BY RANGE ({key})"
        super().database_forwards(app_label, schema_editor, from_state, to_state)
        del schema_editor.sql_create_table


def rollup_key(period: str) -> models.CompositePrimaryKey:
    columns = ("tenant_id", period, "project_id", "api_key_id", "model", "adapter", "tier")
    return models.CompositePrimaryKey(
        *columns, blank=True, editable=False, primary_key=True, serialize=False
    )


# Of both rollups.
COUNTERS = [
    "requests",
    "completed",
    "cancelled",
    "refused",
    "expired",
    "failed",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "reasoning_tokens",
    "wasted_tokens",
]
HISTOGRAMS = ["ttft_histogram", "itl_histogram", "duration_histogram"]
OWNERS = {
    owner: models.ForeignKey(
        to, models.PROTECT, db_index=False, db_constraint=False, related_name="+"
    )
    for owner, to in (
        ("api_key", "tenants.apikey"),
        ("project", "tenants.project"),
        ("tenant", "tenants.tenant"),
    )
}
MEASURES = {
    "model": models.CharField(max_length=200),
    "adapter": models.CharField(max_length=200),
    "tier": models.CharField(max_length=40),
    **{counter: models.PositiveBigIntegerField() for counter in COUNTERS},
    "cost_nanos": models.PositiveBigIntegerField("cost (nano-dollars)"),
    **{name: HistogramField(default=Histogram, editable=False) for name in HISTOGRAMS},
}

USAGE_RECORD = CreatePartitionedModel(
    "UsageRecord",
    columns(
        request_id=models.UUIDField(primary_key=True, editable=False, serialize=False),
        tier=models.CharField(max_length=40),
        pool=models.CharField(max_length=100),
        model=models.CharField(max_length=200),
        api=models.CharField(
            "API", max_length=40, choices=pairs("chat.completions", "completions")
        ),
        stream=models.BooleanField(),
        attempt=models.PositiveSmallIntegerField(help_text="0 if no worker took the request."),
        worker_id=models.CharField(null=True, blank=True, max_length=200),
        outcome=models.CharField(
            max_length=20, choices=pairs("completed", "cancelled", "refused", "expired", "failed")
        ),
        finish_reason=models.CharField(null=True, blank=True, max_length=40),
        error_code=models.CharField(null=True, blank=True, max_length=80),
        prompt_tokens=models.PositiveIntegerField(),
        cached_tokens=models.PositiveIntegerField(),
        completion_tokens=models.PositiveIntegerField(),
        arrived_at=models.DateTimeField(),
        finished_at=models.DateTimeField(),
        queue_ms=models.PositiveIntegerField("queued (ms)", null=True, blank=True),
        ttft_ms=models.PositiveIntegerField("TTFT (ms)", null=True, blank=True),
        recorded_at=models.DateTimeField(default=timezone.now, editable=False),
        api_key=models.ForeignKey(
            "tenants.apikey", models.PROTECT, verbose_name="API key", db_index=False
        ),
        project=models.ForeignKey(
            "tenants.project", models.PROTECT, db_index=False, db_constraint=False
        ),
        tenant=models.ForeignKey(
            "tenants.tenant", models.PROTECT, db_index=False, db_constraint=False
        ),
        adapter=models.CharField(default="", blank=True, max_length=200),
        cost_nanos=models.PositiveBigIntegerField("cost (nano-dollars)", default=0),
        itl_p50_ms=models.FloatField("inter-token latency, p50 (ms)", null=True, blank=True),
        itl_p95_ms=models.FloatField("inter-token latency, p95 (ms)", null=True, blank=True),
        price_cached=models.PositiveBigIntegerField(
            "cached price (pico-dollars / token)", default=0
        ),
        price_completion=models.PositiveBigIntegerField(
            "completion price (pico-dollars / token)", default=0
        ),
        price_permille=models.PositiveIntegerField("price multiplier (‰)", default=1000),
        price_prompt=models.PositiveBigIntegerField(
            "prompt price (pico-dollars / token)", default=0
        ),
        reasoning_tokens=models.PositiveIntegerField(default=0),
        service_class=models.CharField(default="interactive", max_length=40),
        waste_reason=models.CharField(default="", blank=True, max_length=80),
        wasted_tokens=models.PositiveIntegerField(default=0),
        generated_tokens=models.PositiveIntegerField(
            default=0,
            help_text="Generated in this attempt, by the engine's own count; 0 if no worker reported the end.",
        ),
    ),
    options={
        "ordering": ["-request_id"],
        "indexes": [
            models.Index(fields=["tenant", "arrived_at"], name="usage_tenant_arrived"),
            models.Index(fields=["arrived_at"], name="usage_arrived"),
        ],
    },
)

WASTED_ATTEMPT = migrations.CreateModel(
    "WastedAttempt",
    columns(
        id=AUTO_KEY,
        request_id=models.UUIDField(editable=False),
        attempt=models.PositiveSmallIntegerField(),
        tier=models.CharField(max_length=40),
        pool=models.CharField(max_length=100),
        model=models.CharField(max_length=200),
        adapter=models.CharField(default="", blank=True, max_length=200),
        worker_id=models.CharField(null=True, blank=True, max_length=200),
        completion_tokens=models.PositiveIntegerField(),
        reason=models.CharField(max_length=80),
        ended_at=models.DateTimeField(),
        recorded_at=models.DateTimeField(default=timezone.now, editable=False),
        api_key=models.ForeignKey(
            "tenants.apikey", models.PROTECT, verbose_name="API key", db_index=False
        ),
        project=models.ForeignKey("tenants.project", models.PROTECT, db_index=False),
        tenant=models.ForeignKey("tenants.tenant", models.PROTECT, db_index=False),
        generated_tokens=models.PositiveIntegerField(default=0),
    ),
    options={
        "ordering": ["-request_id", "attempt"],
        "indexes": [models.Index(fields=["tenant", "ended_at"], name="waste_tenant_ended")],
        "constraints": [
            models.UniqueConstraint(fields=["request_id", "attempt"], name="wasted_attempt_once")
        ],
    },
)

USAGE_ROLLUP = migrations.CreateModel(
    "UsageRollup",
    columns(pk=rollup_key("hour"), **MEASURES, hour=models.DateTimeField(), **OWNERS),
    options={"indexes": [models.Index(fields=["hour"], name="usage_rollup_hour")]},
)

DAILY_USAGE = migrations.CreateModel(
    "DailyUsage",
    columns(pk=rollup_key("day"), **MEASURES, day=models.DateField(), **OWNERS),
    options={"indexes": [models.Index(fields=["day"], name="daily_usage_day")]},
)

ENGINE_TOKEN_COUNTER = migrations.CreateModel(
    "EngineTokenCounter",
    columns(
        id=AUTO_KEY,
        pool=models.CharField(max_length=100),
        worker_id=models.CharField(max_length=200),
        generated_tokens=models.PositiveBigIntegerField(),
        unbilled_tokens=models.PositiveBigIntegerField(
            help_text="Of these, tokens of requests that leave no usage record."
        ),
        started_at=models.DateTimeField(),
        counted_at=models.DateTimeField(),
        is_final=models.BooleanField(help_text="Reported at the end of a drain."),
        recorded_at=models.DateTimeField(default=timezone.now, editable=False),
    ),
    options={
        "ordering": ["-counted_at"],
        "constraints": [
            models.UniqueConstraint(fields=["pool", "worker_id"], name="engine_token_counter_once")
        ],
    },
)

USAGE_QUARANTINE = migrations.CreateModel(
    "UsageQuarantine",
    columns(
        id=SERIAL_KEY,
        pool=models.CharField(max_length=100),
        stream_id=models.CharField(max_length=50),
        entry=models.BinaryField(help_text="Raw bytes of the stream entry."),
        reason=models.CharField(max_length=500),
        quarantined_at=models.DateTimeField(default=timezone.now, editable=False),
    ),
    options={
        "verbose_name": "quarantined usage entry",
        "verbose_name_plural": "quarantined usage entries",
        "ordering": ["-id"],
        "constraints": [
            models.UniqueConstraint(
                F("pool"), F("stream_id"), MD5("entry"), name="usage_quarantine_once"
            )
        ],
    },
)
