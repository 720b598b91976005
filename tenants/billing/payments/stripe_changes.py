"""What an event of Stripe's makes us look at, and what we make of it (docs/payments.md).

An event is a hint. What it is about is read anew, outside of any transaction, and compared with our
books: what is missing there is booked, what cannot be matched is puzzling and waits for an
operator.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db import transaction

from tenants.billing.invoicing import invoices
from tenants.billing.models import Invoice, InvoiceState, Payment, ProviderEvent, Verdict
from tenants.billing.payments.reversals import set_reversed
from tenants.billing.payments.stripe_objects import StripeInvoice, StripeReversal
from tenants.errors import Conflict
from tenants.money import NANOS_PER_CENT

STRIPE: Final = "stripe"
_CURRENCY: Final = "usd"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a change: the verdict of the event that told of it, and why."""

    verdict: Verdict
    reason: str = ""


# Applies what was read. Runs in an `operator_scope`; raises `RedisError`.
Change = Callable[[], Outcome]

_IGNORED: Final = Outcome(verdict=Verdict.IGNORED)
_OF_INVOICE: Final = ("invoice.paid", "invoice.payment_succeeded", "invoice.overpaid",
                      "invoice.voided", "invoice.marked_uncollectible")  # fmt: skip
# Whose object names the invoice that it is about.
_NAMING_INVOICE: Final = ("invoice_payment.", "credit_note.")
_OF_REFUND: Final = ("refund.", "charge.refund.updated")
_OF_DISPUTE: Final = "charge.dispute."


def read_change(event: Mapping[str, Any]) -> Change:
    """Read what an event is about. Raises `ProviderFailed` where that cannot be read now."""
    from tenants.billing.payments.stripe_provider import Stripe

    kind, about = str(event.get("type", "")), _part(_part(event, "data"), "object")
    stripe = Stripe.from_settings()
    if event.get("account"):
        return partial(_puzzling, "It is of an account connected to ours.")
    if kind in _OF_INVOICE:
        return _read(stripe.read_invoice, about.get("id"), apply_invoice)
    if kind.startswith(_NAMING_INVOICE):
        return _read(stripe.read_invoice, about.get("invoice"), apply_invoice)
    if kind.startswith(_OF_REFUND):
        return _read(stripe.read_refund, about.get("id"), apply_reversal)
    if kind.startswith(_OF_DISPUTE):
        return _read(stripe.read_dispute, about.get("id"), apply_reversal)
    return lambda: _IGNORED


def _read(read: Callable[[str], Any], reference: object, apply: Callable[[Any], Outcome]) -> Change:
    if not isinstance(reference, str) or not reference:
        return partial(_puzzling, "It names no object.")
    found = read(reference)
    if found is None:
        return partial(_puzzling, f"Stripe has no {reference}.")
    return partial(apply, found)


def apply_invoice(found: StripeInvoice) -> Outcome:
    """Book the payments of an invoice at Stripe that are not booked yet."""
    if not found.number:
        return Outcome(verdict=Verdict.IGNORED, reason="It is about no invoice of ours.")
    try:
        invoice = Invoice.objects.get(id=found.number)
    except (Invoice.DoesNotExist, ValidationError, ValueError):
        return _puzzling(f"There is no invoice {found.number!r}.")
    if found.reference != invoice.provider_reference:
        return _puzzling(f"{invoice} was not asked for as {found.reference}.")
    problems = list(_book(found, invoice))
    invoice.refresh_from_db()
    problems += _differences(found, invoice)
    if problems:
        return _puzzling(" ".join(problems))
    if invoice.payments.filter(provider=STRIPE).exists():
        told = "paid" if invoice.state == InvoiceState.PAID else "paid in part"
        return Outcome(verdict=Verdict.APPLIED, reason=f"{invoice} is {told}.")
    return Outcome(verdict=Verdict.IGNORED, reason=f"Nothing has paid {invoice} yet.")


def _book(found: StripeInvoice, invoice: Invoice) -> Iterator[str]:
    """Book what is not booked, and yield why some cannot be."""
    # Versions before this one booked the whole invoice under its own name.
    names = [found.reference, *(paid.reference for paid in found.payments)]
    booked = Payment.objects.filter(provider=STRIPE, reference__in=names)
    known = set(booked.values_list("reference", flat=True))
    for paid in found.payments:
        if found.reference in known or paid.reference in known:
            continue
        if paid.currency != _CURRENCY:
            yield f"{paid.reference} is of {paid.cents} {paid.currency} cents, not usd."
            continue
        nanos = paid.cents * NANOS_PER_CENT
        if found.overpaid_cents:
            # The rest stands on the customer's balance at Stripe.
            nanos = min(nanos, invoice.unpaid_nanos)
        try:
            with transaction.atomic():
                invoices.pay(
                    invoice.id,
                    nanos=nanos,
                    reference=paid.reference,
                    charge=paid.charge,
                    provider=STRIPE,
                    received_at=paid.paid_at,
                )
        except (Conflict, ValidationError) as error:
            yield f"{paid.reference} paid {paid.cents} cents: {error}"


def _differences(found: StripeInvoice, invoice: Invoice) -> Iterator[str]:
    """Yield what Stripe's invoice says otherwise than ours, once its payments are booked."""
    if found.credited_cents:
        yield f"Credit notes at Stripe lessen {invoice} by {found.credited_cents} cents: adjust."
    if found.overpaid_cents:
        yield f"{found.overpaid_cents} cents more than {invoice} asks for are at Stripe."
    if invoice.state != InvoiceState.ISSUED:
        return
    if found.status == "paid":
        left = invoice.unpaid_nanos // NANOS_PER_CENT
        yield (
            f"Stripe calls {invoice} paid, and {left} cents came by no payment: was the customer's "
            "balance there applied, or was it marked paid by hand?"
        )
    elif found.status in {"void", "uncollectible"}:
        yield f"{invoice} is {found.status} at Stripe, and still to be paid here."


def apply_reversal(found: StripeReversal) -> Outcome:
    """Book what a refund or dispute holds of a payment now."""
    paid = Payment.objects.filter(provider=STRIPE).select_related("invoice")
    payments = list(paid.filter(charge__in=found.charges))
    if not payments:
        # Booked by a version that kept no charge.
        payments = list(paid.filter(charge="", invoice__provider_reference__in=found.invoices))
    if not payments:
        unbooked = Invoice.objects.filter(provider_reference__in=found.invoices).first()
        if unbooked is not None and found.cents:
            return _puzzling(f"{found.reference} takes a payment of {unbooked} that is not booked.")
        return Outcome(verdict=Verdict.IGNORED, reason="It is about no payment of ours.")
    if len(payments) > 1 or found.currency != _CURRENCY:
        named = ", ".join(str(each.invoice) for each in payments)
        return _puzzling(f"{found.reference} takes {found.cents} {found.currency} of {named}.")
    [payment] = payments
    try:
        with transaction.atomic():
            made = set_reversed(
                payment,
                found.cents * NANOS_PER_CENT,
                reference=found.reference,
                status=found.status,
            )
    except Conflict as error:
        return _puzzling(str(error))
    if made is None:
        return Outcome(verdict=Verdict.IGNORED, reason=f"{found.reference} is {found.status}.")
    return Outcome(
        verdict=Verdict.APPLIED,
        reason=f"{found.reference}, {found.status}, holds {found.cents} cents of the payment of "
        f"{payment.invoice}.",
    )


def _puzzling(reason: str) -> Outcome:
    """Return the verdict for what waits for an operator; said once while nobody has resolved it."""
    before = ProviderEvent.objects.unresolved().filter(provider=STRIPE, reason=reason[:500]).first()
    if before is not None:
        return Outcome(verdict=Verdict.IGNORED, reason=f"As {before.event_id} said: {reason}")
    return Outcome(verdict=Verdict.PUZZLING, reason=reason)


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return an object within an object, an empty one where there is none."""
    part = whole.get(name)
    return part if isinstance(part, dict) else {}
