"""What of Stripe's objects decides, as values: read anew from its API, never taken from an event.

docs.stripe.com/api: invoices/object, invoice-payment/object, refunds/object, disputes/object.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import stripe


@dataclass(frozen=True, kw_only=True)
class StripePayment:
    """What one payment has paid of an invoice, in cents. `charge` is its payment intent, charge or
    payment record."""

    reference: str
    charge: str
    cents: int
    currency: str
    paid_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class StripeInvoice:
    """An invoice at Stripe: `number` is the id of ours that it was made for."""

    reference: str
    number: str
    status: str
    currency: str
    total_cents: int
    overpaid_cents: int
    credited_cents: int
    payments: Sequence[StripePayment]


@dataclass(frozen=True, kw_only=True)
class StripeReversal:
    """A refund or a dispute, and how many cents of the charge it holds now. `invoices` are those at
    Stripe that the charge has paid."""

    reference: str
    status: str
    charges: frozenset[str]
    invoices: Sequence[str]
    cents: int
    currency: str


# What a refund takes while it is `pending` or `requires_action` may never leave.
_REFUNDED: Final = "succeeded"


def invoice_of(found: "stripe.Invoice") -> StripeInvoice:
    paid = () if found.payments is None else found.payments.auto_paging_iter()
    return StripeInvoice(
        reference=str(found.id),
        number=str(getattr(found.metadata, "penstock_invoice", None) or ""),
        status=str(found.status),
        currency=found.currency,
        total_cents=found.total,
        overpaid_cents=getattr(found, "amount_overpaid", None) or 0,
        credited_cents=found.pre_payment_credit_notes_amount
        + found.post_payment_credit_notes_amount,
        payments=[
            StripePayment(
                reference=each.id,
                charge=_charge(each.payment),
                cents=each.amount_paid or 0,
                currency=each.currency,
                paid_at=_moment(each.status_transitions.paid_at),
            )
            for each in paid
            if each.status == "paid"
        ],
    )


def refund_of(found: "stripe.Refund", invoices: Iterable[str]) -> StripeReversal:
    return StripeReversal(
        reference=found.id,
        status=str(found.status),
        charges=charges_of(found),
        invoices=list(invoices),
        cents=found.amount if found.status == _REFUNDED else 0,
        currency=found.currency,
    )


def dispute_of(found: "stripe.Dispute", invoices: Iterable[str]) -> StripeReversal:
    """Of an inquiry nothing is withdrawn yet; of a dispute that was won it is given again: what has
    moved stands in its balance transactions, whatever its status."""
    return StripeReversal(
        reference=found.id,
        status=found.status,
        charges=charges_of(found),
        invoices=list(invoices),
        cents=-sum(each.amount for each in found.balance_transactions),
        currency=found.currency,
    )


def charges_of(found: Any) -> frozenset[str]:
    return frozenset(_id(each) for each in (found.payment_intent, found.charge) if each)


def _charge(payment: Any) -> str:
    # One of them is there, by the type of the payment.
    kinds = ("payment_intent", "charge", "payment_record")
    named = (getattr(payment, kind, None) for kind in kinds)
    return next((_id(each) for each in named if each), "")


def _id(expandable: Any) -> str:
    return expandable if isinstance(expandable, str) else str(expandable.id)


def _moment(seconds: int | None) -> datetime | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
