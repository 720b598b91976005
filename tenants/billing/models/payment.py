"""Payments of invoices, and everything that payment providers ever told us."""

import uuid
from typing import ClassVar

from django.db import models
from django.db.models import Q
from django.utils import timezone

from tenants.billing.models.invoice import Invoice
from tenants.isolation.scoping import ScopedManager
from tenants.models import Tenant


class Payment(models.Model):
    """Money that came for an invoice, for all of it or a part. Never changed."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="payments")
    invoice = models.ForeignKey(Invoice, on_delete=models.PROTECT, related_name="payments")
    amount_nanos = models.BigIntegerField()
    provider = models.CharField(max_length=20)
    reference = models.CharField(
        max_length=200, help_text="The bank's or the provider's reference."
    )
    # The provider's payment intent or charge: its refunds and disputes name that.
    charge = models.CharField(max_length=200, blank=True)
    received_at = models.DateTimeField()
    # Of money that was booked on account before: its transaction in the ledger.
    ledger_transaction_id = models.UUIDField(null=True, editable=False)
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = ScopedManager["Payment"]()

    class Meta:
        ordering = ["-recorded_at"]
        constraints = [
            models.UniqueConstraint(fields=["provider", "reference"], name="payment_once"),
            models.UniqueConstraint(fields=["id", "tenant"], name="payment_of_tenant"),
            models.CheckConstraint(condition=Q(amount_nanos__gt=0), name="payment_positive"),
        ]
        indexes = [
            models.Index(fields=["charge"], condition=~Q(charge=""), name="payment_by_charge")
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.reference}"


class PaymentReversal(models.Model):
    """Money of a payment that a refund or a dispute at the provider took back (above zero), or that
    came again (below), as a dispute that was won. Never changed."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    payment = models.ForeignKey(Payment, on_delete=models.PROTECT, related_name="reversals")
    amount_nanos = models.BigIntegerField()
    reference = models.CharField(
        max_length=200, help_text="What the provider calls the refund or dispute."
    )
    status = models.CharField(max_length=60, help_text="Its status at the provider.")
    recorded_at = models.DateTimeField(default=timezone.now, editable=False)

    objects = ScopedManager["PaymentReversal"]()

    class Meta:
        ordering = ["-recorded_at"]
        constraints = [
            models.CheckConstraint(condition=~Q(amount_nanos=0), name="payment_reversal_not_zero")
        ]

    def __str__(self) -> str:
        return self.reference


class Verdict(models.TextChoices):
    """What became of a provider's event."""

    APPLIED = "applied", "applied: changed an invoice"
    IGNORED = "ignored", "ignored: genuine but not relevant"
    PUZZLING = "puzzling", "puzzling: genuine but inconsistent with our records"
    REPLAYED = "replayed", "replayed: received before"
    FORGED = "forged", "forged: invalid signature"
    STALE = "stale", "stale: signature too old, possibly a replay"


class ProviderEventQuerySet(models.QuerySet["ProviderEvent"]):
    def unresolved(self) -> "ProviderEventQuerySet":
        """Return what did not fit our books and nobody has looked into."""
        return self.filter(verdict=Verdict.PUZZLING, resolution=None)


class ProviderEvent(models.Model):
    """A webhook as it came, kept for ever, refused ones too. A genuine event is one row of these
    verdicts: so its id tells whether it came before."""

    objects = ProviderEventQuerySet.as_manager()

    GENUINE: ClassVar = [Verdict.APPLIED, Verdict.IGNORED, Verdict.PUZZLING]

    id = models.BigAutoField(primary_key=True)
    provider = models.CharField(max_length=20)
    # Of a forged one it is what it claims.
    event_id = models.CharField(max_length=200, blank=True)
    kind = models.CharField(max_length=100, blank=True)
    verdict = models.CharField(max_length=20, choices=Verdict.choices)
    reason = models.CharField(max_length=500, blank=True)
    address = models.CharField("IP address", max_length=45, blank=True)
    body = models.TextField(help_text="As received; truncated if forged.")
    received_at = models.DateTimeField(default=timezone.now, editable=False)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["provider", "event_id"],
                condition=Q(verdict__in=["applied", "ignored", "puzzling"]),
                name="provider_event_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.event_id or self.id}"


class EventResolution(models.Model):
    """What an operator made of a puzzling event; who it was stands in the audit log."""

    is_audited = True

    event = models.OneToOneField(
        ProviderEvent, on_delete=models.PROTECT, primary_key=True, related_name="resolution"
    )
    note = models.CharField(
        max_length=500, help_text="What was done about it. Stored permanently: no personal data."
    )
    resolved_at = models.DateTimeField(default=timezone.now, editable=False)

    def __str__(self) -> str:
        return self.note


class ProviderCustomer(models.Model):
    """What a payment provider calls a tenant."""

    is_audited = False

    tenant = models.ForeignKey(Tenant, on_delete=models.PROTECT, related_name="+")
    provider = models.CharField(max_length=20)
    reference = models.CharField(max_length=200)

    objects = ScopedManager["ProviderCustomer"]()

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["tenant", "provider"], name="provider_customer_once")
        ]

    def __str__(self) -> str:
        return f"{self.provider} {self.reference}"
