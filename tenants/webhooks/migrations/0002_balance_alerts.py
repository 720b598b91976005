import django.core.validators
import django.db.models.deletion
from django.db import migrations, models

from tenants.audit.triggers import Audit
from tenants.isolation.row_security import BuildTenantWall, LetWebOnly


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0009_billing_mode"),
        ("webhooks", "0001_initial"),
    ]

    operations = [
        migrations.CreateModel(
            name="BalanceAlert",
            fields=[
                (
                    "tenant",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="tenants.tenant",
                    ),
                ),
                (
                    "threshold_nanos",
                    models.PositiveBigIntegerField(
                        blank=True,
                        default=5000000000,
                        help_text="Told at this balance or below, in nano-dollars; empty: never.",
                        null=True,
                        validators=[django.core.validators.MaxValueValidator(4611686018427387904)],
                    ),
                ),
                ("is_low", models.BooleanField(default=False)),
            ],
        ),
        BuildTenantWall("BalanceAlert"),
        LetWebOnly("BalanceAlert", "SELECT", "INSERT", "UPDATE (threshold_nanos)"),
        Audit("BalanceAlert", noise=["is_low"]),
    ]
