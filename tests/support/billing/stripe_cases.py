"""What Stripe does, as its documentation says it, and what our books say then: docs/payments.md has
the same rows. Each case begins with an invoice of 39 dollars that Stripe was asked to collect."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.support.billing.stripe_api import StripeApi, event_of

Happening = Callable[[StripeApi, str], Sequence[dict[str, Any]]]


@dataclass(frozen=True, kw_only=True)
class StripeCase:
    """What happens at Stripe to an invoice, as the events that tell of it; their verdicts; whether
    the invoice is paid then, and what is in the ledger, in dollars."""

    name: str
    happens: Happening
    verdicts: Sequence[str]
    is_paid: bool = False
    paid_in: int = 0
    owed: int = 39
    prepaid: int = 0


def _paid(api: StripeApi, named: str) -> list[dict[str, Any]]:
    return [event_of("invoice.paid", api.pay(named, 3900), "evt_paid")]


def _paid_and(then: Happening) -> Happening:
    def happens(api: StripeApi, named: str) -> list[dict[str, Any]]:
        return [*_paid(api, named), *then(api, named)]

    return happens


def _in_parts(api: StripeApi, named: str) -> list[dict[str, Any]]:
    events = []
    for number, cents in enumerate((1000, 900, 2000)):
        part = api.pay(named, cents)["payments"]["data"][-1]
        events.append(event_of("invoice_payment.paid", part, f"evt_part_{number}"))
    return [*events, event_of("invoice.paid", api.objects[f"/v1/invoices/{named}"], "evt_paid")]


def _a_part(api: StripeApi, named: str) -> list[dict[str, Any]]:
    part = api.pay(named, 1000)["payments"]["data"][-1]
    return [event_of("invoice_payment.paid", part)]


def _late_and_again(api: StripeApi, named: str) -> list[dict[str, Any]]:
    part = api.pay(named, 1000)["payments"]["data"][-1]
    told_first = api.pay(named, 2900)
    paid = event_of("invoice.paid", told_first, "evt_paid")
    late = event_of("invoice_payment.paid", part, "evt_part") | {"created": 1_793_000_000}
    return [paid, late, paid]


def _balance_applied(api: StripeApi, named: str) -> list[dict[str, Any]]:
    api.change(named, amount_due=3400)
    return [event_of("invoice.paid", api.pay(named, 3400))]


def _all_by_balance(api: StripeApi, named: str) -> list[dict[str, Any]]:
    return [event_of("invoice.paid", api.change(named, amount_due=0, status="paid"))]


def _overpaid(api: StripeApi, named: str) -> list[dict[str, Any]]:
    return [event_of("invoice.overpaid", api.pay(named, 5000))]


def _other_currency(api: StripeApi, named: str) -> list[dict[str, Any]]:
    return [event_of("invoice.paid", api.pay(named, 3900, currency="eur"))]


def _credit_note(api: StripeApi, named: str) -> list[dict[str, Any]]:
    api.change(named, amount_due=2900, pre_payment_credit_notes_amount=1000)
    note = {"id": "cn_1", "object": "credit_note", "invoice": named}
    paid = event_of("invoice.paid", api.pay(named, 2900), "evt_paid")
    return [event_of("credit_note.created", note, "evt_note"), paid]


def _voided(api: StripeApi, named: str) -> list[dict[str, Any]]:
    return [event_of("invoice.voided", api.change(named, status="void"))]


def _uncollectible(api: StripeApi, named: str) -> list[dict[str, Any]]:
    changed = api.change(named, status="uncollectible")
    return [event_of("invoice.marked_uncollectible", changed)]


def _refunded(cents: int, *statuses: str) -> Happening:
    def happens(api: StripeApi, named: str) -> list[dict[str, Any]]:
        # The events come late: what is read is what became of it.
        refunds = [api.refund(named, cents, status) for status in statuses]
        return [event_of("refund.updated", each, f"evt_{n}") for n, each in enumerate(refunds)]

    return happens


def _disputed(status: str, *cents: int) -> Happening:
    def happens(api: StripeApi, named: str) -> list[dict[str, Any]]:
        dispute = api.dispute(named, status, *cents)
        kinds = ("charge.dispute.created", "charge.dispute.closed")
        return [event_of(kind, dispute, f"evt_{kind}") for kind in kinds]

    return happens


def _of_others(api: StripeApi, named: str) -> list[dict[str, Any]]:
    return [event_of("refund.created", api.refund("in_of_others", 700))]


CASES = (
    StripeCase(name="paid in whole", happens=_paid, verdicts=["applied"], is_paid=True,
               paid_in=39, owed=0),
    StripeCase(name="paid in parts", happens=_in_parts, verdicts=["applied"] * 4, is_paid=True,
               paid_in=39, owed=0),
    StripeCase(name="a part is paid", happens=_a_part, verdicts=["applied"], paid_in=10, owed=29),
    StripeCase(name="events out of order, late and repeated", happens=_late_and_again,
               verdicts=["applied", "applied", "replayed"], is_paid=True, paid_in=39, owed=0),
    StripeCase(name="customer balance applied to a part", happens=_balance_applied,
               verdicts=["puzzling"], paid_in=34, owed=5),
    StripeCase(name="customer balance applied to all, or marked paid by hand",
               happens=_all_by_balance, verdicts=["puzzling"]),
    StripeCase(name="overpaid", happens=_overpaid, verdicts=["puzzling"], is_paid=True,
               paid_in=39, owed=0),
    StripeCase(name="another currency", happens=_other_currency, verdicts=["puzzling"]),
    StripeCase(name="credit note", happens=_credit_note, verdicts=["puzzling", "ignored"],
               paid_in=29, owed=10),
    StripeCase(name="voided at Stripe", happens=_voided, verdicts=["puzzling"]),
    StripeCase(name="marked uncollectible at Stripe", happens=_uncollectible,
               verdicts=["puzzling"]),
    StripeCase(name="refunded in part", happens=_paid_and(_refunded(700, "succeeded")),
               verdicts=["applied", "applied"], is_paid=True, paid_in=32, owed=7),
    StripeCase(name="refund pending", happens=_paid_and(_refunded(700, "pending")),
               verdicts=["applied", "ignored"], is_paid=True, paid_in=39, owed=0),
    StripeCase(name="refund failed", happens=_paid_and(_refunded(700, "succeeded", "failed")),
               verdicts=["applied", "ignored", "ignored"], is_paid=True, paid_in=39, owed=0),
    StripeCase(name="refund of another payment", happens=_of_others, verdicts=["ignored"]),
    StripeCase(name="inquiry", happens=_paid_and(_disputed("warning_needs_response")),
               verdicts=["applied", "ignored", "ignored"], is_paid=True, paid_in=39, owed=0),
    StripeCase(name="dispute open", happens=_paid_and(_disputed("needs_response", -3900)),
               verdicts=["applied", "applied", "ignored"], is_paid=True, paid_in=0, owed=39),
    StripeCase(name="dispute lost", happens=_paid_and(_disputed("lost", -3900)),
               verdicts=["applied", "applied", "ignored"], is_paid=True, paid_in=0, owed=39),
    StripeCase(name="dispute won", happens=_paid_and(_disputed("won", -3900, 3900)),
               verdicts=["applied", "ignored", "ignored"], is_paid=True, paid_in=39, owed=0),
)  # fmt: skip
