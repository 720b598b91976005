import django.db.models.deletion
from django.db import migrations, models
from django.db.models import Q

from tenants.isolation.row_security import BuildTenantWall
from tenants.migrations._schema import sql_file


class Migration(migrations.Migration):
    """Usage waits, added up, to be posted to the ledger."""

    dependencies = [("billing", "0004_payment_reversals")]

    operations = [
        migrations.CreateModel(
            "WaitingCharge",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("model", models.CharField(max_length=200)),
                ("day", models.DateField()),
                ("nanos", models.BigIntegerField()),
                ("requests", models.PositiveIntegerField()),
                ("since", models.DateTimeField()),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="waiting_charges",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "ordering": ["tenant", "model", "day"],
                "indexes": [models.Index(fields=["since"], name="waiting_charge_since")],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("tenant", "model", "day"), name="waiting_charge_once"
                    ),
                    models.CheckConstraint(
                        condition=Q(nanos__gt=0, nanos__lte=10**17), name="waiting_charge_fits"
                    ),
                ],
            },
        ),
        BuildTenantWall("WaitingCharge"),
        sql_file("tenants/billing/ledger/waiting.sql"),
    ]
