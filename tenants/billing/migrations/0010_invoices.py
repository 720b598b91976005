import uuid
from pathlib import Path

import django.core.validators
import django.db.models.deletion
import django.db.models.expressions
import django.utils.timezone
from django.db import migrations, models

from tenants.audit.triggers import Audit
from tenants.isolation.row_security import BindToTenant, BuildTenantWall, LetWebOnly

GUARDS = (Path(__file__).parents[1] / "invoicing" / "invoices.sql").read_text(encoding="utf-8")


class Migration(migrations.Migration):
    dependencies = [
        ("billing", "0002_prices"),
        ("tenants", "0009_billing_mode"),
    ]

    operations = [
        migrations.CreateModel(
            name="ProviderEvent",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("provider", models.CharField(max_length=20)),
                ("event_id", models.CharField(blank=True, max_length=200)),
                ("kind", models.CharField(blank=True, max_length=100)),
                (
                    "verdict",
                    models.CharField(
                        choices=[
                            ("applied", "applied: it changed an invoice"),
                            ("ignored", "ignored: genuine, and nothing to us"),
                            ("puzzling", "puzzling: genuine, but it does not fit our books"),
                            ("replayed", "replayed: an event that came before"),
                            ("forged", "forged: the signature is not the provider's"),
                            (
                                "stale",
                                "stale: signed too long ago, as of one who sends an old one again",
                            ),
                        ],
                        max_length=20,
                    ),
                ),
                ("reason", models.CharField(blank=True, max_length=500)),
                ("address", models.CharField(blank=True, max_length=45, verbose_name="from")),
                ("body", models.TextField(help_text="As it came; of a forged one its beginning.")),
                (
                    "received_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
            ],
            options={
                "ordering": ["-id"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("verdict__in", ["applied", "ignored", "puzzling"])),
                        fields=("provider", "event_id"),
                        name="provider_event_once",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Seller",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("name", models.CharField(max_length=200)),
                ("address", models.TextField(help_text="As on a letter, a line each.")),
                ("tax_id", models.CharField(blank=True, max_length=60, verbose_name="tax id")),
                (
                    "email",
                    models.EmailField(
                        blank=True, max_length=254, verbose_name="email for questions"
                    ),
                ),
                (
                    "payment_terms_days",
                    models.PositiveSmallIntegerField(
                        default=30, help_text="Due so many days after the day of issue."
                    ),
                ),
                (
                    "payment_instructions",
                    models.TextField(
                        blank=True,
                        help_text="How to pay, at the foot: bank, account, what to quote.",
                    ),
                ),
                (
                    "number_prefix",
                    models.CharField(
                        default="INV",
                        help_text="Numbers are <prefix>-<year>-<000001> and up.",
                        max_length=12,
                        unique=True,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[A-Z0-9]+\\Z", "Capital letters and digits only."
                            )
                        ],
                    ),
                ),
                (
                    "review_days",
                    models.PositiveSmallIntegerField(
                        blank=True,
                        default=0,
                        help_text="Days that a month's drafts wait for an operator's look before they are issued; 0: issued at once; empty: issued by hand.",
                        null=True,
                    ),
                ),
                (
                    "is_current",
                    models.BooleanField(
                        default=True, help_text="Issues what is issued from now on; one does."
                    ),
                ),
            ],
            options={
                "ordering": ["name"],
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("is_current", True)),
                        fields=("is_current",),
                        name="one_current_seller",
                        violation_error_message="There is a current seller already.",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Invoice",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("period", models.DateField(help_text="The first day of its month.")),
                (
                    "state",
                    models.CharField(
                        choices=[
                            ("draft", "draft"),
                            ("issued", "issued"),
                            ("paid", "paid"),
                            ("void", "void"),
                        ],
                        default="draft",
                        max_length=10,
                    ),
                ),
                ("number", models.CharField(blank=True, max_length=40, null=True, unique=True)),
                ("year", models.PositiveSmallIntegerField(blank=True, null=True)),
                ("sequence", models.PositiveIntegerField(blank=True, null=True)),
                ("usage_until", models.DateTimeField(editable=False)),
                ("charges_nanos", models.BigIntegerField(default=0, editable=False)),
                ("credits_nanos", models.BigIntegerField(default=0, editable=False)),
                ("due_nanos", models.BigIntegerField(default=0, editable=False)),
                ("brought_forward_nanos", models.BigIntegerField(default=0, editable=False)),
                ("payable_nanos", models.BigIntegerField(default=0, editable=False)),
                ("carried_nanos", models.BigIntegerField(default=0, editable=False)),
                ("seller_details", models.JSONField(default=dict, editable=False)),
                ("buyer_name", models.CharField(editable=False, max_length=200)),
                (
                    "drafted_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                ("issued_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("due_on", models.DateField(blank=True, editable=False, null=True)),
                ("paid_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("voided_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("void_reason", models.CharField(blank=True, max_length=500)),
                ("provider", models.CharField(blank=True, editable=False, max_length=20)),
                (
                    "provider_reference",
                    models.CharField(blank=True, editable=False, max_length=200),
                ),
                ("payment_url", models.CharField(blank=True, editable=False, max_length=1000)),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="invoices",
                        to="tenants.tenant",
                    ),
                ),
                (
                    "seller",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="invoices",
                        to="billing.seller",
                    ),
                ),
            ],
            options={
                "ordering": ["-period", "-number"],
            },
        ),
        migrations.CreateModel(
            name="SlaCreditStep",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                (
                    "promise",
                    models.CharField(
                        choices=[
                            ("ttft", "time to first token"),
                            ("inter_token", "time between tokens"),
                            ("uptime", "uptime"),
                        ],
                        max_length=20,
                    ),
                ),
                (
                    "shortfall_points",
                    models.DecimalField(
                        decimal_places=3,
                        help_text="0.4: at 99.1 % or less where 99.5 % was promised. 0: any shortfall.",
                        max_digits=6,
                        validators=[
                            django.core.validators.MinValueValidator(0),
                            django.core.validators.MaxValueValidator(100),
                        ],
                    ),
                ),
                (
                    "credit_percent",
                    models.PositiveSmallIntegerField(
                        validators=[
                            django.core.validators.MinValueValidator(1),
                            django.core.validators.MaxValueValidator(100),
                        ]
                    ),
                ),
            ],
            options={
                "verbose_name": "SLA credit step",
                "ordering": ["promise", "shortfall_points"],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("promise", "shortfall_points"), name="sla_credit_step_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="InvoiceLine",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("position", models.PositiveIntegerField()),
                (
                    "kind",
                    models.CharField(
                        choices=[
                            ("usage", "usage"),
                            ("late_usage", "usage of an earlier month that came late"),
                            ("adjustment", "adjustment"),
                            ("sla_credit", "credit for a promise that was not kept"),
                            ("paid_by_credit", "paid by credit"),
                        ],
                        max_length=20,
                    ),
                ),
                ("period", models.DateField()),
                ("description", models.CharField(blank=True, max_length=300)),
                ("project_id", models.UUIDField(null=True)),
                ("project_name", models.CharField(blank=True, max_length=200)),
                ("model", models.CharField(blank=True, max_length=200)),
                ("tier", models.CharField(blank=True, max_length=40)),
                ("adapter", models.CharField(blank=True, max_length=200)),
                ("requests", models.BigIntegerField(default=0)),
                ("prompt_tokens", models.BigIntegerField(default=0)),
                ("cached_tokens", models.BigIntegerField(default=0)),
                ("completion_tokens", models.BigIntegerField(default=0)),
                ("recorded_after", models.DateTimeField(null=True)),
                ("amount_nanos", models.BigIntegerField()),
                ("ledger_transaction_id", models.UUIDField(null=True)),
                ("account", models.CharField(blank=True, max_length=30)),
                ("promise", models.CharField(blank=True, max_length=20)),
                (
                    "promised_percent",
                    models.DecimalField(decimal_places=6, max_digits=9, null=True),
                ),
                (
                    "measured_percent",
                    models.DecimalField(decimal_places=6, max_digits=9, null=True),
                ),
                ("credit_percent", models.PositiveSmallIntegerField(null=True)),
                ("granted_nanos", models.BigIntegerField(default=0)),
                (
                    "invoice",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="lines",
                        to="billing.invoice",
                    ),
                ),
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
                "ordering": ["position"],
                "indexes": [
                    models.Index(fields=["tenant", "period"], name="invoice_line_of_month"),
                    models.Index(
                        condition=models.Q(("ledger_transaction_id__isnull", False)),
                        fields=["ledger_transaction_id"],
                        name="invoice_line_of_posting",
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(
                        fields=("invoice", "position"), name="invoice_line_position"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Payment",
            fields=[
                (
                    "id",
                    models.UUIDField(
                        default=uuid.uuid4, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("amount_nanos", models.BigIntegerField()),
                ("provider", models.CharField(max_length=20)),
                (
                    "reference",
                    models.CharField(
                        help_text="What the bank or the provider calls the payment.", max_length=200
                    ),
                ),
                ("received_at", models.DateTimeField()),
                (
                    "recorded_at",
                    models.DateTimeField(default=django.utils.timezone.now, editable=False),
                ),
                (
                    "invoice",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="payment",
                        to="billing.invoice",
                    ),
                ),
                (
                    "tenant",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="payments",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "ordering": ["-recorded_at"],
                "constraints": [
                    models.UniqueConstraint(fields=("provider", "reference"), name="payment_once"),
                    models.CheckConstraint(
                        condition=models.Q(("amount_nanos__gt", 0)), name="payment_positive"
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ProviderCustomer",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("provider", models.CharField(max_length=20)),
                ("reference", models.CharField(max_length=200)),
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
                "constraints": [
                    models.UniqueConstraint(
                        fields=("tenant", "provider"), name="provider_customer_once"
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="InvoiceCounter",
            fields=[
                (
                    "id",
                    models.BigAutoField(
                        auto_created=True, primary_key=True, serialize=False, verbose_name="ID"
                    ),
                ),
                ("year", models.PositiveSmallIntegerField()),
                ("last", models.PositiveIntegerField(default=0)),
                (
                    "seller",
                    models.ForeignKey(
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="billing.seller",
                    ),
                ),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        fields=("seller", "year"), name="invoice_counter_of_year"
                    )
                ],
            },
        ),
        migrations.AddIndex(
            model_name="invoice",
            index=models.Index(fields=["state", "period"], name="invoice_by_state"),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.UniqueConstraint(
                condition=models.Q(("state", "void"), _negated=True),
                fields=("tenant", "period"),
                name="invoice_once_in_period",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.UniqueConstraint(
                fields=("seller", "year", "sequence"), name="invoice_number_once"
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.UniqueConstraint(fields=("id", "tenant"), name="invoice_of_tenant"),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("issued_at", None),
                        ("number", None),
                        ("sequence", None),
                        ("state", "draft"),
                    ),
                    models.Q(
                        models.Q(("state", "draft"), _negated=True),
                        ("issued_at__isnull", False),
                        ("number__isnull", False),
                        ("sequence__isnull", False),
                    ),
                    _connector="OR",
                ),
                name="invoice_numbered_once_issued",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "carried_nanos",
                        django.db.models.expressions.CombinedExpression(
                            django.db.models.expressions.CombinedExpression(
                                models.F("due_nanos"), "+", models.F("brought_forward_nanos")
                            ),
                            "-",
                            models.F("payable_nanos"),
                        ),
                    )
                ),
                name="invoice_carries_remainder",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    (
                        "due_nanos",
                        django.db.models.expressions.CombinedExpression(
                            models.F("charges_nanos"), "+", models.F("credits_nanos")
                        ),
                    )
                ),
                name="invoice_adds_up",
            ),
        ),
        migrations.AddConstraint(
            model_name="invoice",
            constraint=models.CheckConstraint(
                condition=models.Q(("payable_nanos__gte", 0)), name="invoice_payable_not_negative"
            ),
        ),
        BuildTenantWall("Invoice"),
        BuildTenantWall("InvoiceLine"),
        BuildTenantWall("Payment"),
        BuildTenantWall("ProviderCustomer"),
        BindToTenant("InvoiceLine", column="invoice_id", target="billing_invoice"),
        BindToTenant("Payment", column="invoice_id", target="billing_invoice"),
        LetWebOnly("Invoice", "SELECT"),
        LetWebOnly("InvoiceLine", "SELECT"),
        LetWebOnly("Payment", "SELECT"),
        LetWebOnly("Seller"),
        LetWebOnly("InvoiceCounter"),
        LetWebOnly("SlaCreditStep", "SELECT"),
        LetWebOnly("ProviderEvent"),
        LetWebOnly("ProviderCustomer", "SELECT"),
        Audit("Seller", label=["name"]),
        Audit("SlaCreditStep", label=["promise"]),
        Audit("Invoice", label=["number"], personal=["buyer_name"]),
        Audit("Payment", label=["reference"]),
        migrations.RunSQL(GUARDS),
    ]
