"""Whom requests were for: on their records, and summed up by day."""

from django.db import migrations, models

from tenants.isolation.row_security import BuildTenantWall, LetWebOnly
from tenants.migrations._schema import columns

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
OWNERS = {
    owner: models.ForeignKey(
        f"tenants.{owner}", models.PROTECT, db_index=False, db_constraint=False, related_name="+"
    )
    for owner in ("tenant", "project")
}


class Migration(migrations.Migration):
    dependencies = [("tenants", "0007_usage_labels"), ("inference", "0007_refusals")]

    operations = [
        migrations.AddField(
            "UsageRecord",
            "labels",
            models.JSONField(
                null=True,
                blank=True,
                help_text="Whom it was for, by the names that its project chose.",
            ),
        ),
        migrations.AddField("WastedAttempt", "labels", models.JSONField(null=True, blank=True)),
        migrations.CreateModel(
            "LabelUsage",
            columns(
                pk=models.CompositePrimaryKey(
                    "tenant_id",
                    "day",
                    "name",
                    "value",
                    "project_id",
                    blank=True,
                    editable=False,
                    primary_key=True,
                    serialize=False,
                ),
                **OWNERS,
                day=models.DateField(),
                name=models.CharField(max_length=73),
                value=models.CharField(max_length=64),
                **{counter: models.PositiveBigIntegerField() for counter in COUNTERS},
                cost_nanos=models.PositiveBigIntegerField("cost (nano-dollars)"),
            ),
        ),
        BuildTenantWall("LabelUsage"),
        LetWebOnly("LabelUsage", "SELECT"),
    ]
