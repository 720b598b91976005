"""Invoices and their lines. A draft can go; what is issued triggers lock (`invoices.sql`)."""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from django.db import models
from django.db.models import Q, Sum
from django.utils import timezone

from tenants.billing.models.seller import Seller
from tenants.billing.periods import end_of, start_of
from tenants.isolation.scoping import ScopedManager
from tenants.models import Tenant
from tenants.money import whole_cents


class InvoiceState(models.TextChoices):
    """draft -> issued -> paid | void. Only a draft can be thrown away."""

    DRAFT = "draft", "draft"
    ISSUED = "issued", "issued"
    PAID = "paid", "paid"
    VOID = "void", "void"


class LineKind(models.TextChoices):
    """What a line is for, in the order of the page."""

    USAGE = "usage", "usage"
    LATE_USAGE = "late_usage", "late usage of an earlier month"
    ADJUSTMENT = "adjustment", "adjustment"
    SLA_CREDIT = "sla_credit", "SLA credit"
    PAID_BY_CREDIT = "paid_by_credit", "paid by credit"
    PAYMENT = "payment", "payment on account"


CREDIT_LINE_KINDS: Final = (LineKind.PAID_BY_CREDIT, LineKind.PAYMENT, LineKind.SLA_CREDIT)


class InvoiceQuerySet(models.QuerySet["Invoice"]):
    def not_void(self) -> "InvoiceQuerySet":
        """Return all but the void ones."""
        return self.exclude(state=InvoiceState.VOID)

    def for_tenants(self) -> "InvoiceQuerySet":
        """Return what a tenant's own people see: drafts are the operator's."""
        return self.exclude(state=InvoiceState.DRAFT)

    def newest_of(self, tenant_id: uuid.UUID) -> "Invoice | None":
        return self.not_void().filter(tenant_id=tenant_id).order_by("-period").first()


InvoiceManager = ScopedManager.from_queryset(InvoiceQuerySet)


class Invoice(models.Model):
    """What a tenant owes for a month (UTC, by arrival of the requests).

    Amounts are exact nano-dollars; only `payable_nanos` is whole cents, and what it leaves over,
    `carried_nanos`, stands on the next invoice as `brought_forward_nanos`:

        payable + carried = due + brought forward,    due = sum of the lines.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="invoices")
    seller = models.ForeignKey(Seller, on_delete=models.PROTECT, related_name="invoices")
    period = models.DateField(help_text="First day of the month.")
    state = models.CharField(
        max_length=10, choices=InvoiceState.choices, default=InvoiceState.DRAFT
    )
    # Given when it is issued, and kept for ever.
    number = models.CharField(max_length=40, null=True, blank=True, unique=True)
    year = models.PositiveSmallIntegerField(null=True, blank=True)
    sequence = models.PositiveIntegerField(null=True, blank=True)
    # Everything that was recorded up to here is on this invoice or on one before it.
    usage_until = models.DateTimeField("usage recorded up to", editable=False)
    charges_nanos = models.BigIntegerField(default=0, editable=False)
    credits_nanos = models.BigIntegerField(default=0, editable=False)
    due_nanos = models.BigIntegerField(default=0, editable=False)
    brought_forward_nanos = models.BigIntegerField(default=0, editable=False)
    payable_nanos = models.BigIntegerField(default=0, editable=False)
    carried_nanos = models.BigIntegerField(default=0, editable=False)
    # As both were called when it was issued.
    seller_details = models.JSONField(default=dict, editable=False)
    buyer_name = models.CharField(max_length=200, editable=False)
    drafted_at = models.DateTimeField(default=timezone.now, editable=False)
    # Of a draft: why it could not be issued the last time.
    blocked_reason = models.CharField(max_length=500, blank=True, editable=False)
    issued_at = models.DateTimeField(null=True, blank=True, editable=False)
    due_on = models.DateField(null=True, blank=True, editable=False)
    paid_at = models.DateTimeField(null=True, blank=True, editable=False)
    voided_at = models.DateTimeField(null=True, blank=True, editable=False)
    void_reason = models.CharField(max_length=500, blank=True)
    # What the payment provider calls it, once it has been asked to collect.
    provider = models.CharField(max_length=20, blank=True, editable=False)
    provider_reference = models.CharField(max_length=200, blank=True, editable=False)
    payment_url = models.CharField("payment URL", max_length=1000, blank=True, editable=False)

    objects = InvoiceManager()

    class Meta:
        ordering = ["-period", "-number"]
        indexes = [models.Index(fields=["state", "period"], name="invoice_by_state")]
        constraints = [
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
                condition=Q(state="draft", number=None, issued_at=None, sequence=None)
                | ~Q(state="draft")
                & Q(number__isnull=False, issued_at__isnull=False, sequence__isnull=False),
                name="invoice_numbered_once_issued",
            ),
            models.CheckConstraint(
                condition=Q(
                    carried_nanos=models.F("due_nanos")
                    + models.F("brought_forward_nanos")
                    - models.F("payable_nanos")
                ),
                name="invoice_carries_remainder",
            ),
            models.CheckConstraint(
                condition=Q(due_nanos=models.F("charges_nanos") + models.F("credits_nanos")),
                name="invoice_adds_up",
            ),
            models.CheckConstraint(
                condition=Q(payable_nanos__gte=0), name="invoice_payable_not_negative"
            ),
        ]

    def __str__(self) -> str:
        return self.number or f"draft {self.period:%Y-%m}"

    @property
    def month(self) -> str:
        return f"{self.period:%Y-%m}"

    @property
    def is_draft(self) -> bool:
        return self.state == InvoiceState.DRAFT

    def add_up(self, lines: Iterable["InvoiceLine"], *, least_nanos: int = 0) -> None:
        """Set the invoice's amounts from these lines, which are all that it has. Less than
        `least_nanos` is not asked for, but carried."""
        self.charges_nanos = self.credits_nanos = 0
        for line in lines:
            if line.kind in CREDIT_LINE_KINDS:
                self.credits_nanos += line.amount_nanos
            else:
                self.charges_nanos += line.amount_nanos
        self.due_nanos = self.charges_nanos + self.credits_nanos
        to_pay = self.due_nanos + self.brought_forward_nanos
        payable_nanos = whole_cents(to_pay)
        self.payable_nanos = payable_nanos if payable_nanos >= least_nanos else 0
        self.carried_nanos = to_pay - self.payable_nanos

    @property
    def unpaid_nanos(self) -> int:
        """Return what of it no payment has covered, whatever its state."""
        paid = self.payments.aggregate(nanos=Sum("amount_nanos", default=0))["nanos"]
        return self.payable_nanos - int(paid)

    @property
    def is_overdue(self) -> bool:
        today = datetime.now(UTC).date()
        return self.state == InvoiceState.ISSUED and bool(self.due_on and self.due_on < today)


@dataclass(frozen=True, kw_only=True)
class UsageFilter:
    """Exactly the usage records behind a line: of a month by arrival, recorded in an interval (open
    below, closed above)."""

    tenant_id: uuid.UUID
    project_id: uuid.UUID
    model: str
    tier: str
    adapter: str
    first: datetime
    end: datetime
    recorded_after: datetime | None
    recorded_until: datetime


class InvoiceLine(models.Model):
    """One amount of an invoice, signed: what is owed is positive.

    Lines of usage trace to the records that they are the sum of (`usage_filter`).
    """

    # What they are sums of is on record, and triggers lock them with their invoice.
    is_audited = False

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+", db_index=False)
    invoice = models.ForeignKey(Invoice, on_delete=models.CASCADE, related_name="lines")
    position = models.PositiveIntegerField()
    kind = models.CharField(max_length=20, choices=LineKind.choices)
    # The month that it is about; of late usage an earlier one than the invoice's.
    period = models.DateField()
    description = models.CharField(max_length=300, blank=True)
    project_id = models.UUIDField(null=True)
    project_name = models.CharField(max_length=200, blank=True)
    model = models.CharField(max_length=200, blank=True)
    tier = models.CharField(max_length=40, blank=True)
    adapter = models.CharField(max_length=200, blank=True)
    requests = models.BigIntegerField(default=0)
    prompt_tokens = models.BigIntegerField(default=0)
    cached_tokens = models.BigIntegerField(default=0)
    completion_tokens = models.BigIntegerField(default=0)
    recorded_after = models.DateTimeField(null=True)
    amount_nanos = models.BigIntegerField()
    # Of an adjustment or a payment: the ledger's transaction that it shows. Of a credit: its
    # account.
    ledger_transaction_id = models.UUIDField(null=True)
    account = models.CharField(max_length=30, blank=True)
    # Of an SLA credit.
    promise = models.CharField(max_length=20, blank=True)
    promised_percent = models.DecimalField(max_digits=9, decimal_places=6, null=True)
    measured_percent = models.DecimalField(max_digits=9, decimal_places=6, null=True)
    credit_percent = models.PositiveSmallIntegerField(null=True)
    # What is credited; `amount_nanos` is the part that this invoice could be lessened by.
    granted_nanos = models.BigIntegerField(default=0)

    objects = ScopedManager["InvoiceLine"]()

    class Meta:
        ordering = ["position"]
        constraints = [
            models.UniqueConstraint(fields=["invoice", "position"], name="invoice_line_position")
        ]
        indexes = [
            models.Index(fields=["tenant", "period"], name="invoice_line_of_month"),
            models.Index(
                fields=["ledger_transaction_id"],
                condition=Q(ledger_transaction_id__isnull=False),
                name="invoice_line_of_posting",
            ),
        ]

    def __str__(self) -> str:
        return self.description or f"{self.model} {self.tier}"

    @property
    def is_usage(self) -> bool:
        return self.kind in {LineKind.USAGE, LineKind.LATE_USAGE}

    @property
    def usage_filter(self) -> UsageFilter | None:
        """Return the filter for the records behind a line of usage, None for other lines."""
        if not self.is_usage or self.project_id is None:
            return None
        return UsageFilter(
            tenant_id=self.tenant_id,
            project_id=self.project_id,
            model=self.model,
            tier=self.tier,
            adapter=self.adapter,
            first=start_of(self.period),
            end=end_of(self.period),
            recorded_after=self.recorded_after,
            recorded_until=self.invoice.usage_until,
        )

    @property
    def group(self) -> tuple[Any, ...]:
        """Return what a line of usage is a sum over."""
        return (self.period, self.project_id, self.model, self.tier, self.adapter)
