"""What it costs to keep adapters."""

from django.contrib.postgres.constraints import ExclusionConstraint
from django.db import migrations, models
from django.db.models import F, Q

from tenants.audit.triggers import Audit
from tenants.billing.migrations._prices import PERIOD
from tenants.billing.models.price import Period
from tenants.isolation.row_security import LetWebOnly
from tenants.migrations._schema import UUID_KEY, columns, sql_file

STORAGE_PRICE = migrations.CreateModel(
    "StoragePrice",
    columns(
        **PERIOD,
        id=UUID_KEY,
        micros_per_gib_month=models.PositiveBigIntegerField(
            "price per GiB and month",
            help_text="In micro-dollars: 100000 is $0.10; 0 charges nothing.",
        ),
    ),
    options={
        "ordering": ["-effective_from"],
        "constraints": [
            ExclusionConstraint(
                expressions=[(Period(), "&&")],
                name="storage_price_periods_disjoint",
                violation_error_code="period_overlap",
                violation_error_message="Another price already applies in part of this period. "
                "End it first, or choose a period that does not overlap.",
            ),
            models.CheckConstraint(
                condition=Q(effective_until=None) | Q(effective_until__gte=F("effective_from")),
                name="storage_price_period_valid",
                violation_error_code="period_order",
                violation_error_message="The period must end after it starts.",
            ),
        ],
    },
)


class Migration(migrations.Migration):
    dependencies = [("billing", "0006_sla_credit_review")]

    operations = [
        STORAGE_PRICE,
        sql_file("tenants/billing/pricing/storage.sql"),
        LetWebOnly("StoragePrice", "SELECT"),
        Audit("StoragePrice", label=["effective_from"]),
        migrations.AlterField(
            "LedgerTransaction",
            "kind",
            models.CharField(
                max_length=20,
                choices=[
                    ("usage", "Usage"),
                    ("top_up", "Top Up"),
                    ("promotion", "Promotion"),
                    ("sla_credit", "Sla Credit"),
                    ("payment", "Payment"),
                    ("refund", "Refund"),
                    ("expiry", "Expiry"),
                    ("adjustment", "Adjustment"),
                    ("re_rating", "Re Rating"),
                    ("write_off", "Write Off"),
                    ("reversal", "Reversal"),
                    ("storage", "Storage"),
                ],
            ),
        ),
    ]
