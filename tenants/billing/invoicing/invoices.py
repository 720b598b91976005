"""What is done with an invoice: issue, pay, void, discard. Inside an `operator_scope`.

All of it moves money only through the ledger, each movement under a reference of its own, so that
nothing is posted twice.
"""

import uuid
from datetime import UTC, datetime, timedelta

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from tenants.billing.invoicing.usage_source import usage_cutoff
from tenants.billing.ledger.credit import payment_entries
from tenants.billing.ledger.posting import Entry, Posting, lock_balances, post
from tenants.billing.ledger.refusals import INVOICE_REFERENCES, reference_taken
from tenants.billing.models import (
    AccountName,
    Invoice,
    InvoiceCounter,
    InvoiceLine,
    InvoiceState,
    LedgerTransaction,
    LineKind,
    Payment,
    Seller,
    TransactionKind,
)
from tenants.errors import Conflict
from tenants.isolation.audit_actor import Verb, audited_as
from tenants.models import PolicyChange, PolicyImpact, PolicyPart
from tenants.money import dollars, dollars_and_cents
from tenants.webhooks.event_types import EventType
from tenants.webhooks.events import publish

MANUAL = "manual"


def issue(invoice_id: uuid.UUID, *, now: datetime | None = None) -> Invoice:
    """Give a draft its number, for ever, and post its SLA credits: what they exceed what is owed by
    becomes credit. One with nothing to pay is paid.

    Raises `Conflict` where it is no draft any more, or an earlier one of its tenant still is.
    """
    now = now or timezone.now()
    with transaction.atomic(), audited_as(Verb.ISSUED):
        # First of all: who issues does so one after the other, in the order of the numbers.
        seller = Seller.objects.get(invoices=invoice_id)
        counter = InvoiceCounter.locked(seller, now.astimezone(UTC).year)
        invoice = _locked(invoice_id)
        _check_issuable(invoice)
        invoice.year, invoice.sequence = counter.year, counter.take()
        invoice.number = f"{seller.number_prefix}-{counter.year}-{invoice.sequence:06d}"
        invoice.state = InvoiceState.ISSUED
        invoice.issued_at = now
        invoice.due_on = now.astimezone(UTC).date() + timedelta(days=seller.payment_terms_days)
        invoice.seller_details = seller.details()
        if not invoice.tenant.is_closed:
            invoice.buyer_name = invoice.tenant.name
        invoice.blocked_reason = ""
        _apply_sla_credits(invoice)
        invoice.save()
        _post_sla_credits(invoice, is_reversed=False)
        _publish(invoice, EventType.INVOICE_ISSUED, now)
        if invoice.payable_nanos == 0:
            invoice.state, invoice.paid_at = InvoiceState.PAID, now
            invoice.save(update_fields=["state", "paid_at"])
            _publish(invoice, EventType.INVOICE_PAID, now)
    return invoice


def pay(
    invoice_id: uuid.UUID,
    *,
    reference: str,
    provider: str = MANUAL,
    received_at: datetime | None = None,
) -> Payment:
    """Note that all of an issued invoice was paid: what is owed is, and more than that is credit.
    The same payment again changes nothing, and one that was booked on account before is not booked
    again.

    Raises `Conflict` where the invoice is a draft, void, or paid otherwise, and where money of this
    reference is not there for it; `ValidationError` without a reference.
    """
    reference = reference.strip()
    if not reference:
        missing = "Say what the bank or the provider calls the payment."
        raise ValidationError({"reference": ValidationError(missing, code="required")})
    with transaction.atomic(), audited_as(Verb.PAID):
        usage_cutoff()  # nobody drafts meanwhile an invoice that the same money lessens
        invoice = _locked(invoice_id)
        paid = Payment.objects.filter(invoice=invoice).first()
        if paid is not None and (paid.provider, paid.reference) == (provider, reference):
            return paid
        if invoice.state != InvoiceState.ISSUED:
            raise _in_wrong_state(invoice, "only an issued invoice can be paid")
        other = Payment.objects.filter(provider=provider, reference=reference).first()
        if other is not None:
            raise Conflict(
                f"The {provider} payment {reference!r} has paid {other.invoice} already.",
                code="payment_used",
                params={"invoice": str(other.invoice)},
            )
        lock_balances([invoice.tenant_id])
        on_account = _on_account(invoice, reference)
        payment = Payment.objects.create(
            tenant_id=invoice.tenant_id,
            invoice=invoice,
            amount_nanos=invoice.payable_nanos,
            provider=provider,
            reference=reference,
            received_at=received_at or timezone.now(),
            ledger_transaction_id=None if on_account is None else on_account.id,
        )
        if on_account is None:
            _post_payment(invoice)
        invoice.state, invoice.paid_at = InvoiceState.PAID, payment.received_at
        invoice.save(update_fields=["state", "paid_at"])
        _publish(invoice, EventType.INVOICE_PAID, payment.received_at)
    return payment


def void(invoice_id: uuid.UUID, *, reason: str) -> Invoice:
    """Take an issued invoice back. It keeps its number; what it posted is posted the other way
    round, and its month can be invoiced anew. Raises `Conflict` where it is paid, or not the newest
    of its tenant: later ones were made on top of it; `ValidationError` without a reason."""
    reason = reason.strip()
    if not reason:
        missing = ValidationError("Say why it is void.", code="required")
        raise ValidationError({"void_reason": missing})
    with transaction.atomic(), audited_as(Verb.VOIDED):
        usage_cutoff()  # nobody drafts on top of it meanwhile
        invoice = _locked(invoice_id)
        if invoice.state != InvoiceState.ISSUED:
            raise _in_wrong_state(invoice, "only an issued invoice can be void")
        _check_newest(invoice, "void")
        _post_sla_credits(invoice, is_reversed=True)
        invoice.state, invoice.voided_at = InvoiceState.VOID, timezone.now()
        invoice.void_reason = reason
        invoice.save(update_fields=["state", "voided_at", "void_reason"])
    return invoice


def discard(invoice_id: uuid.UUID) -> None:
    """Throw a draft away. Raises `Conflict` where it is none, or not the newest of its tenant."""
    with transaction.atomic():
        usage_cutoff()
        invoice = _locked(invoice_id)
        if not invoice.is_draft:
            raise _in_wrong_state(invoice, "only a draft can be discarded")
        _check_newest(invoice, "discarded")
        invoice.delete()


def _locked(invoice_id: uuid.UUID) -> Invoice:
    found = Invoice.objects.select_for_update(of=("self",)).select_related("tenant", "seller")
    return found.get(id=invoice_id)


def _check_issuable(invoice: Invoice) -> None:
    if not invoice.is_draft:
        raise _in_wrong_state(invoice, "only a draft can be issued")
    earlier = Invoice.objects.filter(
        tenant=invoice.tenant_id, state=InvoiceState.DRAFT, period__lt=invoice.period
    ).first()
    if earlier is not None:
        raise Conflict(
            f"Issue the {earlier} of {invoice.tenant.name} first, or discard this one.",
            code="earlier_draft",
            params={"month": earlier.month},
        )


def _check_newest(invoice: Invoice, what: str) -> None:
    newest = Invoice.objects.newest_of(invoice.tenant_id)
    if newest is not None and newest.pk != invoice.pk:
        raise Conflict(
            f"{invoice} cannot be {what}: {newest} of {newest.month} was made on top of it; "
            "take that one back first, or post an adjustment.",
            code="invoice_not_newest",
            params={"newest": str(newest)},
        )


def _in_wrong_state(invoice: Invoice, rule: str) -> Conflict:
    return Conflict(
        f"{invoice} is {invoice.state}; {rule}.",
        code="invoice_state",
        params={"state": invoice.state},
    )


def _publish(invoice: Invoice, kind: EventType, at: datetime) -> None:
    """Publish an event to the tenant once this is committed, one of each kind for an invoice."""
    publish(
        invoice.tenant_id,
        kind,
        {
            "invoice_id": invoice.pk,
            "number": invoice.number,
            "month": invoice.month,
            "payable_nanos": invoice.payable_nanos,
            "due_on": invoice.due_on,
        },
        key=str(invoice.pk),
        occurred_at=at,
    )


# In the ledger -----------------------------------------------------------------------------------


def sla_reference(invoice: Invoice, *, is_reversed: bool = False) -> str:
    return f"{INVOICE_REFERENCES}{invoice.id}:{'void' if is_reversed else 'sla'}"


def payment_reference(invoice: Invoice) -> str:
    return f"{INVOICE_REFERENCES}{invoice.id}:payment"


def _post_sla_credits(invoice: Invoice, *, is_reversed: bool) -> None:
    """Post the SLA credits: they lessen what is owed for the month, and stay as credit beyond that.
    With `is_reversed` they are taken back."""
    sums = invoice.lines.filter(kind=LineKind.SLA_CREDIT).aggregate(
        granted=Sum("granted_nanos", default=0), lessened=Sum("amount_nanos", default=0)
    )
    granted, lessened = sums["granted"], -sums["lessened"]
    if not granted:
        return
    if is_reversed:
        _check_held(invoice, AccountName.SLA_CREDIT, granted - lessened)
    sign = -1 if is_reversed else 1
    entries = [
        Entry(account=AccountName.SLA_EXPENSE, nanos=sign * granted),
        Entry(account=AccountName.RECEIVABLE, nanos=-sign * lessened),
        Entry(account=AccountName.SLA_CREDIT, nanos=-sign * (granted - lessened)),
    ]
    post(
        [
            Posting(
                tenant_id=invoice.tenant_id,
                kind=TransactionKind.SLA_CREDIT,
                reference=sla_reference(invoice, is_reversed=is_reversed),
                entries=[entry for entry in entries if entry.nanos],
                memo=f"{'Taken back: ' if is_reversed else ''}{invoice} for {invoice.month}, "
                f"{dollars_and_cents(granted)}",
            )
        ]
    )
    if granted > lessened:
        _note_policy_change(invoice)


def _apply_sla_credits(invoice: Invoice) -> None:
    """Cut the SLA credits to what is owed now, which may be less than when they were drafted: it
    was paid early, or written off. What is cut stays as credit, and their lines say so."""
    owed_nanos = lock_balances([invoice.tenant_id])[invoice.tenant_id][AccountName.RECEIVABLE]
    lines = list(invoice.lines.order_by("position"))
    for line in lines:
        if line.kind != LineKind.SLA_CREDIT:
            continue
        lessened_nanos = min(-line.amount_nanos, owed_nanos)
        owed_nanos -= lessened_nanos
        if lessened_nanos != -line.amount_nanos:
            # No line is ever changed.
            InvoiceLine.objects.filter(pk=line.pk).delete()
            line.amount_nanos = -lessened_nanos
            line.save(force_insert=True)
    invoice.add_up(lines)


def _on_account(invoice: Invoice, reference: str) -> LedgerTransaction | None:
    """Return the transaction with which this payment was booked before, without its invoice, None
    where it was not. Raises `Conflict` if the reference is another transaction's, an invoice shows
    it already, or part of it is spent. The caller has locked drafting and the tenant's ledger."""
    booked = LedgerTransaction.objects.filter(tenant=invoice.tenant_id, reference=reference).first()
    if booked is None:
        return None
    if booked.kind != TransactionKind.PAYMENT or reference.startswith(INVOICE_REFERENCES):
        raise reference_taken(booked)
    told = InvoiceLine.objects.filter(ledger_transaction_id=booked.id)
    line = told.exclude(invoice__state=InvoiceState.VOID).select_related("invoice").first()
    if line is not None:
        way_out = "; discard it first" if line.invoice.is_draft else ""
        raise Conflict(
            f"The payment {reference!r} is on {line.invoice} already, which asks for less by "
            f"it{way_out}.",
            code="payment_on_invoice",
            params={"invoice": str(line.invoice)},
        )
    if booked.size_nanos < invoice.payable_nanos:
        raise Conflict(
            f"The payment {reference!r} was of {dollars_and_cents(booked.size_nanos)}, and "
            f"{invoice} asks for {dollars_and_cents(invoice.payable_nanos)}.",
            code="payment_too_small",
            params={"paid_nanos": booked.size_nanos, "payable_nanos": invoice.payable_nanos},
        )
    return booked


def _post_payment(invoice: Invoice) -> None:
    entries = payment_entries(
        invoice.payable_nanos, lock_balances([invoice.tenant_id])[invoice.tenant_id]
    )
    post(
        [
            Posting(
                tenant_id=invoice.tenant_id,
                kind=TransactionKind.PAYMENT,
                reference=payment_reference(invoice),
                entries=entries,
                memo=f"Payment of {invoice}",
            )
        ]
    )
    if any(entry.account == AccountName.PREPAID_CREDIT for entry in entries):
        _note_policy_change(invoice)


def _note_policy_change(invoice: Invoice) -> None:
    """Note a change of the policy: what a prepaid tenant may spend stands in its snapshot."""
    PolicyChange.note([PolicyImpact(PolicyPart.TENANTS, str(invoice.tenant_id))])


def _check_held(invoice: Invoice, account: AccountName, needed_nanos: int) -> None:
    """Raise `Conflict` if an account would go below zero, before the ledger refuses it."""
    held_nanos = lock_balances([invoice.tenant_id])[invoice.tenant_id][account]
    if held_nanos < needed_nanos:
        raise Conflict(
            f"The ledger of {invoice.tenant.name} has {dollars(held_nanos)} in "
            f"{account.replace('_', ' ')}, and {invoice} moves {dollars(needed_nanos)} of "
            "it; was it spent, refunded or written off? Post an adjustment instead.",
            code="insufficient_balance",
            params={"account": account, "held_nanos": held_nanos, "needed_nanos": needed_nanos},
        )
