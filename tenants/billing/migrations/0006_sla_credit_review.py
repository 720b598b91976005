import django.db.models.deletion
import django.utils.timezone
from django.core.validators import MaxValueValidator
from django.db import migrations, models

from tenants.audit.triggers import Audit
from tenants.isolation.row_security import LetWebOnly


class Migration(migrations.Migration):
    """A cap on SLA credits, and what operators decide of a draft's. Sellers that are there keep
    their review period."""

    dependencies = [("billing", "0005_waiting_charges")]

    operations = [
        migrations.AddField(
            "Seller",
            "sla_credit_cap_percent",
            models.PositiveSmallIntegerField(
                db_default=100,
                default=100,
                help_text="Most of a month's charges that its SLA credits may come to; 0 credits "
                "nothing.",
                validators=[MaxValueValidator(100)],
                verbose_name="SLA credit cap (%)",
            ),
        ),
        migrations.AlterField(
            "Seller",
            "review_days",
            models.PositiveSmallIntegerField(
                blank=True,
                default=3,
                help_text="Days that drafts are held for review before they are issued. 0 issues "
                "them immediately; leave blank to issue them by hand.",
                null=True,
                verbose_name="review period (days)",
            ),
        ),
        migrations.CreateModel(
            "SlaReview",
            [
                (
                    "invoice",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.CASCADE,
                        primary_key=True,
                        related_name="sla_review",
                        serialize=False,
                        to="billing.invoice",
                    ),
                ),
                (
                    "decision",
                    models.CharField(
                        choices=[
                            ("held", "held"),
                            ("released", "released"),
                            ("refused", "refused"),
                        ],
                        max_length=10,
                    ),
                ),
                (
                    "reason",
                    models.CharField(
                        help_text="Stored permanently in the audit log: no personal data.",
                        max_length=500,
                    ),
                ),
                (
                    "decided_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
            ],
            options={"verbose_name": "SLA credit review"},
        ),
        LetWebOnly("SlaReview"),
        Audit("SlaReview", label=["decision"]),
    ]
