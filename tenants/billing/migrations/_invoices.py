"""Invoices and their lines, who issues them, SLA credits, payments."""

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import migrations, models
from django.db.models import F, Q
from django.utils import timezone

from tenants.migrations._schema import AUTO_KEY, SERIAL_KEY, UUID_KEY, columns, pairs

SELLER = migrations.CreateModel(
    "Seller",
    columns(
        id=UUID_KEY,
        name=models.CharField(max_length=200),
        address=models.TextField(
            help_text="Postal address as printed on invoices, one line per row."
        ),
        tax_id=models.CharField("tax ID", blank=True, max_length=60),
        email=models.EmailField("contact email", blank=True, max_length=254),
        payment_terms_days=models.PositiveSmallIntegerField(
            "payment terms (days)",
            default=30,
            help_text="Invoices are due this many days after the issue date.",
        ),
        payment_instructions=models.TextField(
            blank=True,
            help_text="Printed at the foot of each invoice: bank, account, payment reference.",
        ),
        number_prefix=models.CharField(
            default="INV",
            unique=True,
            max_length=12,
            validators=[RegexValidator("^[A-Z0-9]+\\Z", "Capital letters and digits only.")],
            help_text="Invoice numbers are PREFIX-YEAR-000001 and up.",
        ),
        review_days=models.PositiveSmallIntegerField(
            "review period (days)",
            default=0,
            null=True,
            blank=True,
            help_text="Days that drafts are held for review before they are issued. 0 issues them immediately; leave blank to issue them by hand.",
        ),
        is_current=models.BooleanField(
            "current",
            default=True,
            help_text="New invoices use this seller (only one can be current).",
        ),
    ),
    options={
        "ordering": ["name"],
        "constraints": [
            models.UniqueConstraint(
                fields=["is_current"],
                condition=Q(is_current=True),
                name="one_current_seller",
                violation_error_message="Another seller is already current.",
            )
        ],
    },
)

INVOICE_COUNTER = migrations.CreateModel(
    "InvoiceCounter",
    columns(
        id=AUTO_KEY,
        year=models.PositiveSmallIntegerField(),
        last=models.PositiveIntegerField(default=0),
        seller=models.ForeignKey("billing.seller", models.PROTECT, related_name="+"),
    ),
    options={
        "constraints": [
            models.UniqueConstraint(fields=["seller", "year"], name="invoice_counter_of_year")
        ]
    },
)

INVOICE = migrations.CreateModel(
    "Invoice",
    columns(
        id=UUID_KEY,
        period=models.DateField(help_text="First day of the month."),
        state=models.CharField(
            default="draft", max_length=10, choices=pairs("draft", "issued", "paid", "void")
        ),
        number=models.CharField(null=True, blank=True, unique=True, max_length=40),
        year=models.PositiveSmallIntegerField(null=True, blank=True),
        sequence=models.PositiveIntegerField(null=True, blank=True),
        usage_until=models.DateTimeField("usage recorded up to", editable=False),
        charges_nanos=models.BigIntegerField(default=0, editable=False),
        credits_nanos=models.BigIntegerField(default=0, editable=False),
        due_nanos=models.BigIntegerField(default=0, editable=False),
        brought_forward_nanos=models.BigIntegerField(default=0, editable=False),
        payable_nanos=models.BigIntegerField(default=0, editable=False),
        carried_nanos=models.BigIntegerField(default=0, editable=False),
        seller_details=models.JSONField(default=dict, editable=False),
        buyer_name=models.CharField(max_length=200, editable=False),
        drafted_at=models.DateTimeField(default=timezone.now, editable=False),
        issued_at=models.DateTimeField(null=True, blank=True, editable=False),
        due_on=models.DateField(null=True, blank=True, editable=False),
        paid_at=models.DateTimeField(null=True, blank=True, editable=False),
        voided_at=models.DateTimeField(null=True, blank=True, editable=False),
        void_reason=models.CharField(blank=True, max_length=500),
        provider=models.CharField(blank=True, max_length=20, editable=False),
        provider_reference=models.CharField(blank=True, max_length=200, editable=False),
        payment_url=models.CharField("payment URL", blank=True, max_length=1000, editable=False),
        tenant=models.ForeignKey("tenants.tenant", models.PROTECT, related_name="invoices"),
        seller=models.ForeignKey("billing.seller", models.PROTECT, related_name="invoices"),
        blocked_reason=models.CharField(blank=True, max_length=500, editable=False),
    ),
    options={
        "ordering": ["-period", "-number"],
        "indexes": [models.Index(fields=["state", "period"], name="invoice_by_state")],
        "constraints": [
            models.UniqueConstraint(
                fields=["tenant", "period"],
                condition=~Q(state="void"),
                name="invoice_once_in_period",
                violation_error_message="This tenant already has an invoice for this month.",
            ),
            models.UniqueConstraint(
                fields=["seller", "year", "sequence"], name="invoice_number_once"
            ),
            models.UniqueConstraint(fields=["id", "tenant"], name="invoice_of_tenant"),
            models.CheckConstraint(
                condition=Q(issued_at=None, number=None, sequence=None, state="draft")
                | ~Q(state="draft")
                & Q(issued_at__isnull=False, number__isnull=False, sequence__isnull=False),
                name="invoice_numbered_once_issued",
            ),
            models.CheckConstraint(
                condition=Q(
                    carried_nanos=F("due_nanos") + F("brought_forward_nanos") - F("payable_nanos")
                ),
                name="invoice_carries_remainder",
            ),
            models.CheckConstraint(
                condition=Q(due_nanos=F("charges_nanos") + F("credits_nanos")),
                name="invoice_adds_up",
            ),
            models.CheckConstraint(
                condition=Q(payable_nanos__gte=0), name="invoice_payable_not_negative"
            ),
        ],
    },
)

INVOICE_LINE = migrations.CreateModel(
    "InvoiceLine",
    columns(
        id=UUID_KEY,
        position=models.PositiveIntegerField(),
        kind=models.CharField(
            max_length=20,
            choices=[
                ("usage", "usage"),
                ("late_usage", "late usage of an earlier month"),
                ("adjustment", "adjustment"),
                ("sla_credit", "SLA credit"),
                ("paid_by_credit", "paid by credit"),
                ("payment", "payment on account"),
            ],
        ),
        period=models.DateField(),
        description=models.CharField(blank=True, max_length=300),
        project_id=models.UUIDField(null=True),
        project_name=models.CharField(blank=True, max_length=200),
        model=models.CharField(blank=True, max_length=200),
        tier=models.CharField(blank=True, max_length=40),
        adapter=models.CharField(blank=True, max_length=200),
        requests=models.BigIntegerField(default=0),
        prompt_tokens=models.BigIntegerField(default=0),
        cached_tokens=models.BigIntegerField(default=0),
        completion_tokens=models.BigIntegerField(default=0),
        recorded_after=models.DateTimeField(null=True),
        amount_nanos=models.BigIntegerField(),
        ledger_transaction_id=models.UUIDField(null=True),
        account=models.CharField(blank=True, max_length=30),
        promise=models.CharField(blank=True, max_length=20),
        promised_percent=models.DecimalField(null=True, max_digits=9, decimal_places=6),
        measured_percent=models.DecimalField(null=True, max_digits=9, decimal_places=6),
        credit_percent=models.PositiveSmallIntegerField(null=True),
        granted_nanos=models.BigIntegerField(default=0),
        invoice=models.ForeignKey("billing.invoice", models.CASCADE, related_name="lines"),
        tenant=models.ForeignKey(
            "tenants.tenant", models.PROTECT, db_index=False, related_name="+"
        ),
    ),
    options={
        "ordering": ["position"],
        "indexes": [
            models.Index(fields=["tenant", "period"], name="invoice_line_of_month"),
            models.Index(
                fields=["ledger_transaction_id"],
                condition=Q(ledger_transaction_id__isnull=False),
                name="invoice_line_of_posting",
            ),
        ],
        "constraints": [
            models.UniqueConstraint(fields=["invoice", "position"], name="invoice_line_position")
        ],
    },
)

SLA_CREDIT_STEP = migrations.CreateModel(
    "SlaCreditStep",
    columns(
        id=UUID_KEY,
        promise=models.CharField(
            "SLA target",
            max_length=20,
            choices=[
                ("ttft", "time to first token"),
                ("inter_token", "inter-token latency"),
                ("uptime", "uptime"),
            ],
        ),
        shortfall_points=models.DecimalField(
            "shortfall (percentage points)",
            max_digits=6,
            decimal_places=3,
            validators=[MinValueValidator(0), MaxValueValidator(100)],
            help_text="0.4 applies at 99.1% or less if the target is 99.5%; 0 applies to any shortfall.",
        ),
        credit_percent=models.PositiveSmallIntegerField(
            "credit (%)", validators=[MinValueValidator(1), MaxValueValidator(100)]
        ),
    ),
    options={
        "verbose_name": "SLA credit step",
        "ordering": ["promise", "shortfall_points"],
        "constraints": [
            models.UniqueConstraint(
                fields=["promise", "shortfall_points"],
                name="sla_credit_step_once",
                violation_error_message="This target already has a step at this shortfall.",
            )
        ],
    },
)

PAYMENT = migrations.CreateModel(
    "Payment",
    columns(
        id=UUID_KEY,
        amount_nanos=models.BigIntegerField(),
        provider=models.CharField(max_length=20),
        reference=models.CharField(
            max_length=200, help_text="The bank's or the provider's reference."
        ),
        received_at=models.DateTimeField(),
        recorded_at=models.DateTimeField(default=timezone.now, editable=False),
        invoice=models.OneToOneField("billing.invoice", models.PROTECT, related_name="payment"),
        tenant=models.ForeignKey("tenants.tenant", models.PROTECT, related_name="payments"),
        ledger_transaction_id=models.UUIDField(null=True, editable=False),
    ),
    options={
        "ordering": ["-recorded_at"],
        "constraints": [
            models.UniqueConstraint(fields=["provider", "reference"], name="payment_once"),
            models.CheckConstraint(condition=Q(amount_nanos__gt=0), name="payment_positive"),
        ],
    },
)

PROVIDER_CUSTOMER = migrations.CreateModel(
    "ProviderCustomer",
    columns(
        id=AUTO_KEY,
        provider=models.CharField(max_length=20),
        reference=models.CharField(max_length=200),
        tenant=models.ForeignKey("tenants.tenant", models.PROTECT, related_name="+"),
    ),
    options={
        "constraints": [
            models.UniqueConstraint(fields=["tenant", "provider"], name="provider_customer_once")
        ]
    },
)

PROVIDER_EVENT = migrations.CreateModel(
    "ProviderEvent",
    columns(
        id=SERIAL_KEY,
        provider=models.CharField(max_length=20),
        event_id=models.CharField(blank=True, max_length=200),
        kind=models.CharField(blank=True, max_length=100),
        verdict=models.CharField(
            max_length=20,
            choices=[
                ("applied", "applied: changed an invoice"),
                ("ignored", "ignored: genuine but not relevant"),
                ("puzzling", "puzzling: genuine but inconsistent with our records"),
                ("replayed", "replayed: received before"),
                ("forged", "forged: invalid signature"),
                ("stale", "stale: signature too old, possibly a replay"),
            ],
        ),
        reason=models.CharField(blank=True, max_length=500),
        address=models.CharField("IP address", blank=True, max_length=45),
        body=models.TextField(help_text="As received; truncated if forged."),
        received_at=models.DateTimeField(default=timezone.now, editable=False),
    ),
    options={
        "ordering": ["-id"],
        "constraints": [
            models.UniqueConstraint(
                fields=["provider", "event_id"],
                condition=Q(verdict__in=["applied", "ignored", "puzzling"]),
                name="provider_event_once",
            )
        ],
    },
)
