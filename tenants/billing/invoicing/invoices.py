"""What is done with an invoice: issue, pay, void, discard. Inside an `operator_scope`.

All of it moves money only through the ledger, each movement under a reference of its own, so that
nothing is posted twice.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Sum
from django.utils import timezone

from tenants.billing.invoicing.least_payable import least_payable_nanos
from tenants.billing.invoicing.sla_holds import check_not_held
from tenants.billing.invoicing.usage_source import usage_cutoff
from tenants.billing.ledger.credit import credit_entries, payment_entries
from tenants.billing.ledger.holds import hold
from tenants.billing.ledger.posting import Entry, Posting, lock_balances, post
from tenants.billing.ledger.refusals import INVOICE_REFERENCES, check_amount, reference_taken
from tenants.billing.models import (
    CREDITS,
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
# Of what the tenant's own credit pays; the caller holds that.
CREDIT = "credit"


def issue(invoice_id: uuid.UUID, *, now: datetime | None = None) -> Invoice:
    """Give a draft its number, for ever, and post its SLA credits: what they exceed what is owed by
    becomes credit. One with nothing to pay is paid.

    Raises `Conflict` where it is no draft any more, an earlier one of its tenant still is, or its
    SLA credit is held.
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
    nanos: int | None = None,
    charge: str = "",
) -> Payment:
    """Note that an issued invoice was paid: all that is left of it, or `nanos` of that. What is
    owed is, and more than that is credit. The same payment again changes nothing, and one that was
    booked on account before is not booked again.

    Raises `Conflict` where the invoice is a draft, void, or paid otherwise, where `nanos` are more
    than is left of it, and where money of this reference is not there for it; `ValidationError`
    without a reference.
    """
    reference = reference.strip()
    if not reference:
        missing = "Say what the bank or the provider calls the payment."
        raise ValidationError({"reference": ValidationError(missing, code="required")})
    with transaction.atomic(), audited_as(Verb.PAID):
        usage_cutoff()  # nobody drafts meanwhile an invoice that the same money lessens
        invoice = _locked(invoice_id)
        same = Payment.objects.filter(provider=provider, reference=reference)
        other = same.select_related("invoice").first()
        if other is not None and other.invoice_id == invoice.pk:
            return other
        left_nanos = invoice.unpaid_nanos
        if invoice.state != InvoiceState.ISSUED:
            raise _in_wrong_state(invoice, "only an issued invoice can be paid")
        if other is not None:
            raise Conflict(
                f"The {provider} payment {reference!r} has paid {other.invoice} already.",
                code="payment_used",
                params={"invoice": str(other.invoice)},
            )
        nanos = left_nanos if nanos is None else nanos
        check_amount(nanos)
        if nanos > left_nanos:
            raise Conflict(
                f"{invoice} asks for {dollars_and_cents(left_nanos)} still, "
                f"{dollars_and_cents(nanos)} are more.",
                code="payment_too_large",
                params={"left_nanos": left_nanos},
            )
        lock_balances([invoice.tenant_id])
        on_account = _on_account(invoice, reference, nanos)
        payment = Payment.objects.create(
            tenant_id=invoice.tenant_id,
            invoice=invoice,
            amount_nanos=nanos,
            provider=provider,
            reference=reference,
            charge=charge,
            received_at=received_at or timezone.now(),
            ledger_transaction_id=None if on_account is None else on_account.id,
        )
        if on_account is None:
            _post_payment(invoice, payment)
        if nanos == left_nanos:
            invoice.state, invoice.paid_at = InvoiceState.PAID, payment.received_at
            invoice.save(update_fields=["state", "paid_at"])
            _publish(invoice, EventType.INVOICE_PAID, payment.received_at)
    return payment


def void(invoice_id: uuid.UUID, *, reason: str) -> Invoice:
    """Take an issued invoice back. It keeps its number; what it posted is posted the other way
    round, and its month can be invoiced anew. Raises `Conflict` where any of it is paid, or it is
    not the newest of its tenant: later ones were made on top of it; `ValidationError` without a
    reason."""
    reason = reason.strip()
    if not reason:
        missing = ValidationError("Say why it is void.", code="required")
        raise ValidationError({"void_reason": missing})
    with transaction.atomic(), audited_as(Verb.VOIDED):
        usage_cutoff()  # nobody drafts on top of it meanwhile
        invoice = _locked(invoice_id)
        if invoice.state != InvoiceState.ISSUED:
            raise _in_wrong_state(invoice, "only an issued invoice can be void")
        if invoice.payments.exists():
            raise Conflict(
                f"A part of {invoice} is paid; post an adjustment instead.",
                code="invoice_partly_paid",
            )
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
    check_not_held(invoice)


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


def payment_reference(payment: Payment) -> str:
    """Return under what a payment is booked that was not booked before. Needs its invoice."""
    invoice = payment.invoice
    part = "" if payment.amount_nanos == invoice.payable_nanos else f":{payment.id}"
    return f"{INVOICE_REFERENCES}{invoice.id}:payment{part}"


def _post_sla_credits(invoice: Invoice, *, is_reversed: bool) -> None:
    """Post the SLA credits: they lessen what is owed for the month, and stay as credit beyond that.
    With `is_reversed` they are taken back."""
    sums = invoice.lines.filter(kind=LineKind.SLA_CREDIT).aggregate(
        granted=Sum("granted_nanos", default=0), lessened=Sum("amount_nanos", default=0)
    )
    granted, lessened = sums["granted"], -sums["lessened"]
    if not granted:
        return
    kept, sign = granted - lessened, -1 if is_reversed else 1
    entries = [
        Entry(account=AccountName.SLA_EXPENSE, nanos=sign * granted),
        Entry(account=AccountName.RECEIVABLE, nanos=-sign * lessened),
        Entry(account=AccountName.SLA_CREDIT, nanos=-sign * kept),
    ]
    posting = Posting(
        tenant_id=invoice.tenant_id,
        kind=TransactionKind.SLA_CREDIT,
        reference=sla_reference(invoice, is_reversed=is_reversed),
        entries=[entry for entry in entries if entry.nanos],
        memo=f"{'Taken back: ' if is_reversed else ''}{invoice} for {invoice.month}, "
        f"{dollars_and_cents(granted)}",
    )
    if kept:
        _note_policy_change(invoice)
    if kept and is_reversed:
        with _held_to_take(invoice, kept):
            post([posting])
    else:
        post([posting])


@contextmanager
def _held_to_take(invoice: Invoice, nanos: int) -> Iterator[None]:
    """Hold SLA credit that an invoice has given while it is taken back. Raises `Conflict` where it
    is spent, or reserved by open requests."""
    held_nanos = lock_balances([invoice.tenant_id])[invoice.tenant_id][AccountName.SLA_CREDIT]
    _check_free(invoice, held_nanos, nanos)
    with hold(invoice.tenant_id, nanos) as free_nanos:
        _check_free(invoice, free_nanos, nanos)
        yield


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
    invoice.add_up(lines, least_nanos=least_payable_nanos())


def _on_account(invoice: Invoice, reference: str, nanos: int) -> LedgerTransaction | None:
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
    if booked.size_nanos < nanos:
        raise Conflict(
            f"The payment {reference!r} was of {dollars_and_cents(booked.size_nanos)}, and "
            f"{invoice} asks for {dollars_and_cents(nanos)}.",
            code="payment_too_small",
            params={"paid_nanos": booked.size_nanos, "payable_nanos": nanos},
        )
    return booked


def _post_payment(invoice: Invoice, payment: Payment) -> None:
    held = lock_balances([invoice.tenant_id])[invoice.tenant_id]
    if payment.provider == CREDIT:
        entries = credit_entries(payment.amount_nanos, held)
    else:
        entries = payment_entries(payment.amount_nanos, held)
    post(
        [
            Posting(
                tenant_id=invoice.tenant_id,
                kind=TransactionKind.PAYMENT,
                reference=payment_reference(payment),
                entries=entries,
                memo=f"Payment of {invoice}",
            )
        ]
    )
    if any(entry.account in CREDITS for entry in entries):
        _note_policy_change(invoice)


def _note_policy_change(invoice: Invoice) -> None:
    """Note a change of the policy: what a prepaid tenant may spend stands in its snapshot."""
    PolicyChange.note([PolicyImpact(PolicyPart.TENANTS, str(invoice.tenant_id))])


def _check_free(invoice: Invoice, free_nanos: int, needed_nanos: int) -> None:
    if free_nanos < needed_nanos:
        raise Conflict(
            f"Of the SLA credit that {invoice} gave, {dollars(needed_nanos)}, only "
            f"{dollars(free_nanos)} is neither spent nor reserved by open requests. Post an "
            "adjustment instead.",
            code="insufficient_credit",
            params={"free_nanos": free_nanos, "needed_nanos": needed_nanos},
        )
