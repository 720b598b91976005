from typing import Any

from django.db import migrations, models

from tenants.isolation.row_security import BuildTenantWall, LetWebOnly
from tenants.migrations._schema import SERIAL_KEY, columns

REASON = {
    "model": models.CharField(max_length=200),
    "code": models.CharField(max_length=80),
    "limit": models.CharField(max_length=40),
    "scope": models.CharField(max_length=20),
}
COUNT: dict[str, Any] = {
    **REASON,
    "count": models.PositiveBigIntegerField(),
    "tenant": models.ForeignKey(
        "tenants.tenant", models.PROTECT, db_constraint=False, db_index=False, related_name="+"
    ),
}


def key(*fields: str) -> models.CompositePrimaryKey:
    return models.CompositePrimaryKey(
        *fields, blank=True, editable=False, primary_key=True, serialize=False
    )


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0006_pinned_adapters"),
        ("inference", "0006_adapter_pinned_at"),
    ]

    operations = [
        migrations.CreateModel(
            "RefusalRollup",
            columns(
                **COUNT,
                pk=key("tenant_id", "hour", "project_id", "api_key_id", *REASON),
                hour=models.DateTimeField(),
                project_id=models.UUIDField(),
                api_key_id=models.UUIDField(),
            ),
            options={"indexes": [models.Index(fields=["hour"], name="refusal_rollup_hour")]},
        ),
        migrations.CreateModel(
            "DailyRefusals",
            columns(**COUNT, pk=key("tenant_id", "day", *REASON), day=models.DateField()),
            options={"indexes": [models.Index(fields=["day"], name="daily_refusals_day")]},
        ),
        migrations.CreateModel(
            "NewestRefusal",
            columns(
                id=SERIAL_KEY,
                **REASON,
                at=models.DateTimeField(),
                request_id=models.UUIDField(null=True),
                project_id=models.UUIDField(),
                api_key_id=models.UUIDField(),
                status=models.PositiveSmallIntegerField(),
                message=models.CharField(max_length=500),
                tenant=COUNT["tenant"],
            ),
            options={
                "indexes": [models.Index(fields=["tenant", "at", "id"], name="newest_refusal_at")]
            },
        ),
        migrations.CreateModel(
            "RefusalReporter",
            columns(
                process_id=models.UUIDField(primary_key=True, serialize=False),
                number=models.PositiveBigIntegerField(),
                seen_at=models.DateTimeField(),
            ),
        ),
        BuildTenantWall("RefusalRollup"),
        BuildTenantWall("DailyRefusals"),
        BuildTenantWall("NewestRefusal"),
        LetWebOnly("RefusalRollup", "SELECT"),
        LetWebOnly("DailyRefusals", "SELECT"),
        LetWebOnly("NewestRefusal", "SELECT"),
        LetWebOnly("RefusalReporter"),
    ]
