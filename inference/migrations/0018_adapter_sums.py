"""How often workers have loaded adapters, and for how long; how much tenants keep of them."""

from django.db import migrations, models

from inference.migrations._usage import OWNERS
from tenants.isolation.row_security import BuildTenantWall, LetWebOnly
from tenants.migrations._schema import columns

ADAPTER_LOADS = migrations.CreateModel(
    "AdapterLoads",
    columns(
        pk=models.CompositePrimaryKey(
            "tenant_id", "opaque_name", "day",
            blank=True, editable=False, primary_key=True, serialize=False,
        ),
        tenant=OWNERS["tenant"],
        opaque_name=models.CharField(max_length=64),
        day=models.DateField(),
        loads=models.PositiveBigIntegerField(),
        load_us=models.PositiveBigIntegerField("loading (microseconds)"),
        counted=models.PositiveBigIntegerField(),
        counted_us=models.PositiveBigIntegerField("counted loading (microseconds)"),
    ),
    options={"indexes": [models.Index(fields=["day"], name="adapter_loads_day")]},
)  # fmt: skip


ADAPTER_STORAGE = migrations.CreateModel(
    "AdapterStorage",
    columns(
        pk=models.CompositePrimaryKey(
            "tenant_id", "day", blank=True, editable=False, primary_key=True, serialize=False
        ),
        tenant=OWNERS["tenant"],
        day=models.DateField(),
        hours=models.PositiveSmallIntegerField(),
        last_hour=models.DateTimeField(),
        byte_hours=models.PositiveBigIntegerField(),
        cost_nanos=models.PositiveBigIntegerField("cost (nano-dollars)"),
    ),
    options={"indexes": [models.Index(fields=["day"], name="adapter_storage_day")]},
)


class Migration(migrations.Migration):
    dependencies = [("inference", "0017_adapter_queued")]

    operations = [
        ADAPTER_LOADS,
        ADAPTER_STORAGE,
        *map(BuildTenantWall, ("AdapterLoads", "AdapterStorage")),
        *(LetWebOnly(model, "SELECT") for model in ("AdapterLoads", "AdapterStorage")),
    ]
