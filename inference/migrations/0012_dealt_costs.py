from django.db import migrations, models

from inference.migrations._usage import OWNERS
from tenants.isolation.row_security import BuildTenantWall, LetWebOnly
from tenants.migrations._schema import columns


class Migration(migrations.Migration):
    dependencies = [("inference", "0011_worker_figures")]

    operations = [
        migrations.CreateModel(
            "DealtDay",
            columns(
                day=models.DateField(primary_key=True, serialize=False),
                source=models.CharField(max_length=64),
            ),
        ),
        migrations.CreateModel(
            "DealtCost",
            columns(
                pk=models.CompositePrimaryKey(
                    "day",
                    "tenant_id",
                    blank=True,
                    editable=False,
                    primary_key=True,
                    serialize=False,
                ),
                day=models.DateField(),
                tenant=OWNERS["tenant"],
                tokens=models.PositiveBigIntegerField(),
                revenue_nanos=models.PositiveBigIntegerField(),
                dealt_nanos=models.PositiveBigIntegerField(),
            ),
        ),
        BuildTenantWall("DealtCost"),
        LetWebOnly("DealtDay"),
        LetWebOnly("DealtCost", "SELECT"),
    ]
