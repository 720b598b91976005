import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models

from tenants.isolation.row_security import BuildTenantWall, LetWebOnly


class Migration(migrations.Migration):
    """An invoice may be paid in parts, and the last ones of a tenant are sent to an address."""

    dependencies = [("billing", "0002_ledger_by_kind"), ("tenants", "0009_saved_views")]

    operations = [
        migrations.AlterField(
            "Payment",
            "invoice",
            models.ForeignKey(
                on_delete=django.db.models.deletion.PROTECT,
                related_name="payments",
                to="billing.invoice",
            ),
        ),
        migrations.CreateModel(
            "ClosingAddress",
            [
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("email", models.EmailField(max_length=254)),
                ("told_until", models.DateTimeField(null=True)),
                ("tries", models.PositiveIntegerField(default=0)),
                ("next_try_at", models.DateTimeField(default=django.utils.timezone.now)),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "email"), name="closing_address_once")
                ]
            },
        ),
        BuildTenantWall("ClosingAddress"),
        LetWebOnly("ClosingAddress", "SELECT"),
    ]
