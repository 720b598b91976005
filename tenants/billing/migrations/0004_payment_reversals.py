import uuid

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models
from django.db.models import Q

from tenants.audit.triggers import Audit
from tenants.isolation.row_security import BindToTenant, BuildTenantWall, LetWebOnly

_KINDS = [
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
]


class Migration(migrations.Migration):
    """Refunds and disputes of payments, and what operators make of puzzling events."""

    dependencies = [("billing", "0003_parts_of_payments_and_closing")]

    operations = [
        migrations.AlterField(
            "LedgerTransaction", "kind", models.CharField(choices=_KINDS, max_length=20)
        ),
        migrations.AddField("Payment", "charge", models.CharField(blank=True, max_length=200)),
        migrations.AddIndex(
            "Payment",
            models.Index(condition=~Q(charge=""), fields=["charge"], name="payment_by_charge"),
        ),
        migrations.AddConstraint(
            "Payment",
            models.UniqueConstraint(fields=("id", "tenant"), name="payment_of_tenant"),
        ),
        migrations.CreateModel(
            "PaymentReversal",
            [
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("amount_nanos", models.BigIntegerField()),
                (
                    "reference",
                    models.CharField(
                        help_text="What the provider calls the refund or dispute.", max_length=200
                    ),
                ),
                (
                    "status",
                    models.CharField(help_text="Its status at the provider.", max_length=60),
                ),
                (
                    "recorded_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                (
                    "payment",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="reversals",
                        to="billing.payment",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "ordering": ["-recorded_at"],
                "constraints": [
                    models.CheckConstraint(
                        condition=~Q(amount_nanos=0), name="payment_reversal_not_zero"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            "EventResolution",
            [
                (
                    "event",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="resolution",
                        serialize=False,
                        to="billing.providerevent",
                    ),
                ),
                (
                    "note",
                    models.CharField(
                        help_text="What was done about it. Stored permanently: no personal data.",
                        max_length=500,
                    ),
                ),
                (
                    "resolved_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
            ],
        ),
        BuildTenantWall("PaymentReversal"),
        BindToTenant("PaymentReversal", column="payment_id", target="billing_payment"),
        LetWebOnly("PaymentReversal", "SELECT"),
        LetWebOnly("EventResolution"),
        Audit("PaymentReversal", label=["reference"]),
        Audit("EventResolution", label=["note"]),
        migrations.RunSQL(
            "CREATE TRIGGER payment_guard BEFORE UPDATE OR DELETE ON billing_paymentreversal"
            " FOR EACH ROW EXECUTE FUNCTION penstock_payment_guard();",
            "DROP TRIGGER payment_guard ON billing_paymentreversal;",
        ),
    ]
