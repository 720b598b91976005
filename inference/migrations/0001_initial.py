from django.contrib.postgres.fields import ArrayField
from django.core.validators import MinValueValidator, RegexValidator
from django.db import migrations, models
from django.utils import timezone

from inference.migrations import _usage
from inference.models.catalog import default_capabilities
from tenants.audit.triggers import Audit
from tenants.isolation.row_security import BuildTenantWall, LetWebOnly
from tenants.migrations._schema import UUID_KEY, columns, pairs, sql_file, titled

OF_TENANTS = [
    "PoolTenant",
    "ServedModelTenant",
    "UsageRecord",
    "WastedAttempt",
    "UsageRollup",
    "DailyUsage",
]
NAME = RegexValidator(
    r"\A[A-Za-z0-9][A-Za-z0-9._:/@+-]*\Z",
    "Use letters, digits and . _ : / @ + - only, starting with a letter or digit.",
)

POOL = migrations.CreateModel(
    "Pool",
    columns(
        name=models.CharField(primary_key=True, max_length=100, validators=[NAME], serialize=False),
        description=models.CharField(blank=True, max_length=200),
    ),
    options={"ordering": ["name"]},
)

POOL_TENANT = migrations.CreateModel(
    "PoolTenant",
    columns(
        id=UUID_KEY,
        pool=models.ForeignKey("inference.pool", models.CASCADE, related_name="dedications"),
        tenant=models.ForeignKey("tenants.tenant", models.PROTECT),
    ),
    options={
        "verbose_name": "dedication",
        "verbose_name_plural": "dedicated to",
        "constraints": [
            models.UniqueConstraint(
                fields=["pool", "tenant"],
                name="pool_tenant_once",
                violation_error_message="The pool is already dedicated to this tenant.",
            )
        ],
    },
)

SERVED_MODEL = migrations.CreateModel(
    "ServedModel",
    columns(
        id=UUID_KEY,
        name=models.CharField(unique=True, max_length=200, validators=[NAME]),
        context_tokens=models.PositiveIntegerField(
            "context length (tokens)", validators=[MinValueValidator(1)]
        ),
        owned_by=models.CharField(default="penstock", max_length=100),
        capabilities=ArrayField(
            models.CharField(
                max_length=30,
                choices=titled(
                    "chat", "completions", "tools", "json_schema", "reasoning", "vision"
                ),
            ),
            default=default_capabilities,
        ),
        is_enabled=models.BooleanField(
            "enabled", default=True, help_text="Disabled models are hidden from callers."
        ),
        created_at=models.DateTimeField(default=timezone.now, editable=False),
        pool=models.ForeignKey(
            "inference.pool", models.PROTECT, db_column="pool", related_name="models"
        ),
    ),
    options={"ordering": ["name"]},
)

SERVED_MODEL_TENANT = migrations.CreateModel(
    "ServedModelTenant",
    columns(
        id=UUID_KEY,
        model=models.ForeignKey(
            "inference.servedmodel", models.CASCADE, related_name="visibilities"
        ),
        tenant=models.ForeignKey("tenants.tenant", models.PROTECT),
    ),
    options={
        "verbose_name": "visibility",
        "verbose_name_plural": "visible only to",
        "constraints": [
            models.UniqueConstraint(
                fields=["model", "tenant"],
                name="served_model_tenant_once",
                violation_error_message="The model is already visible to this tenant.",
            )
        ],
    },
)

WORKER = migrations.CreateModel(
    "Worker",
    columns(
        worker_id=models.CharField(primary_key=True, max_length=200, serialize=False),
        name=models.CharField(max_length=150),
        pool=models.CharField(max_length=100),
        model=models.CharField(max_length=200),
        engine=models.CharField(max_length=40),
        engine_version=models.CharField(max_length=80),
        state=models.CharField(max_length=20, choices=pairs("starting", "ready", "draining")),
        slots=models.PositiveIntegerField(),
        running=models.PositiveIntegerField(),
        waiting_in_engine=models.PositiveIntegerField("queued in engine"),
        context_tokens=models.PositiveIntegerField("context length (tokens)"),
        kv_cache_tokens=models.PositiveBigIntegerField("KV cache (tokens)"),
        host=models.CharField(max_length=255),
        pid=models.PositiveIntegerField("process id"),
        metrics_url=models.CharField("metrics URL", blank=True, max_length=500),
        started_at=models.DateTimeField(),
        last_seen_at=models.DateTimeField(),
    ),
    options={
        "ordering": ["pool", "name", "-started_at"],
        "indexes": [models.Index(fields=["pool", "last_seen_at"], name="worker_pool_seen")],
    },
)

GATEWAY = migrations.CreateModel(
    "Gateway",
    columns(
        gateway_id=models.CharField(primary_key=True, max_length=200, serialize=False),
        last_seen_at=models.DateTimeField(),
    ),
)

DEAD_LETTER = migrations.CreateModel(
    "DeadLetter",
    columns(
        request_id=models.UUIDField(primary_key=True, serialize=False),
        pool=models.CharField(max_length=100),
        model=models.CharField(max_length=200),
        api=models.CharField("API", max_length=40),
        attempts=models.PositiveIntegerField(),
        last_worker_id=models.CharField("last worker", blank=True, max_length=200),
        died_at=models.DateTimeField("failed at"),
        is_kept=models.BooleanField(
            "payload stored",
            help_text="Stored for one day, until a retry succeeds, or until it is discarded.",
        ),
        retried_at=models.DateTimeField(null=True),
        retry_outcome=models.CharField(
            "retry outcome",
            blank=True,
            max_length=100,
            help_text="The outcome and any error.",
        ),
    ),
    options={"ordering": ["-died_at"]},
)


class Migration(migrations.Migration):
    initial = True
    dependencies = [("tenants", "0001_initial")]

    operations = [
        POOL,
        POOL_TENANT,
        SERVED_MODEL,
        SERVED_MODEL_TENANT,
        # Their tables have a model of their own, which had to be there first.
        migrations.AddField(
            "Pool",
            "tenants",
            models.ManyToManyField(
                "tenants.tenant",
                related_name="pools",
                through="inference.PoolTenant",
                help_text="Tenants that the pool is dedicated to. Leave blank for all tenants.",
            ),
        ),
        migrations.AddField(
            "ServedModel",
            "tenants",
            models.ManyToManyField(
                "tenants.tenant",
                related_name="served_models",
                through="inference.ServedModelTenant",
                help_text="Tenants that may see the model. Leave blank for all tenants.",
            ),
        ),
        WORKER,
        GATEWAY,
        DEAD_LETTER,
        _usage.USAGE_RECORD,
        _usage.WASTED_ATTEMPT,
        _usage.USAGE_ROLLUP,
        _usage.DAILY_USAGE,
        _usage.ENGINE_TOKEN_COUNTER,
        _usage.USAGE_QUARANTINE,
        sql_file("inference/usage/partitions.sql"),
        *map(BuildTenantWall, OF_TENANTS),
        *(LetWebOnly(model, "SELECT") for model in (*OF_TENANTS, "Pool", "ServedModel")),
        *map(LetWebOnly, ("Worker", "Gateway", "DeadLetter")),
        *map(LetWebOnly, ("EngineTokenCounter", "UsageQuarantine")),
        Audit("Pool", label=["name"]),
        Audit("PoolTenant", label=["pool"]),
        Audit("ServedModel", label=["name"]),
        Audit("ServedModelTenant"),
    ]
