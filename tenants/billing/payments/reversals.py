"""Money of a payment that its provider took back, by a refund or a dispute, or gave again."""

from django.db import transaction
from django.db.models import Sum

from tenants.billing.ledger.credit import payment_entries
from tenants.billing.ledger.holds import hold
from tenants.billing.ledger.posting import Entry, Posting, lock_balances, post
from tenants.billing.ledger.refusals import REVERSAL_REFERENCES
from tenants.billing.models import AccountName, Payment, PaymentReversal, TransactionKind
from tenants.errors import Conflict
from tenants.models import PolicyChange, PolicyImpact, PolicyPart
from tenants.money import dollars_and_cents


def set_reversed(
    payment: Payment, nanos: int, *, reference: str, status: str
) -> PaymentReversal | None:
    """Book what is missing until a refund or dispute has taken `nanos` of a payment; None where
    nothing is. So it may be told any number of times, in any order. Prepaid credit goes first; what
    it does not cover is owed again. Runs in an `operator_scope`.

    Raises `Conflict` where all that was taken would be more than the payment, and `RedisError`
    where what open requests have reserved cannot be asked for.
    """
    with transaction.atomic():
        held = lock_balances([payment.tenant_id])[payment.tenant_id]
        missing = nanos - _taken(payment, reference)
        if not missing:
            return None
        if not 0 <= _taken(payment) + missing <= payment.amount_nanos:
            raise Conflict(
                f"{reference} takes {dollars_and_cents(nanos)} of {payment}, which was of "
                f"{dollars_and_cents(payment.amount_nanos)}, and "
                f"{dollars_and_cents(_taken(payment))} are taken already.",
                code="reversal_too_large",
            )
        made = PaymentReversal.objects.create(
            tenant_id=payment.tenant_id,
            payment=payment,
            amount_nanos=missing,
            reference=reference,
            status=status[:60],
        )
        if missing < 0:
            _post(made, payment_entries(-missing, held))
            return made
        prepaid_nanos = min(missing, held[AccountName.PREPAID_CREDIT])
        if not prepaid_nanos:
            _post(made, _taking(missing, 0))
            return made
        with hold(payment.tenant_id, prepaid_nanos) as free_nanos:
            _post(made, _taking(missing, min(free_nanos, prepaid_nanos)))
        return made


def reversal_reference(reversal: PaymentReversal) -> str:
    """Return under what it stands in the ledger."""
    return f"{REVERSAL_REFERENCES}{reversal.id}"


def _taken(payment: Payment, reference: str | None = None) -> int:
    found = payment.reversals.all()
    if reference is not None:
        found = found.filter(reference=reference)
    return int(found.aggregate(nanos=Sum("amount_nanos", default=0))["nanos"])


def _taking(nanos: int, prepaid_nanos: int) -> list[Entry]:
    entries = [
        Entry(account=AccountName.PREPAID_CREDIT, nanos=prepaid_nanos),
        Entry(account=AccountName.RECEIVABLE, nanos=nanos - prepaid_nanos),
        Entry(account=AccountName.CASH, nanos=-nanos),
    ]
    return [entry for entry in entries if entry.nanos]


def _post(made: PaymentReversal, entries: list[Entry]) -> None:
    what = "taken back" if made.amount_nanos > 0 else "paid again"
    post(
        [
            Posting(
                tenant_id=made.tenant_id,
                kind=TransactionKind.REVERSAL,
                reference=reversal_reference(made),
                entries=entries,
                memo=f"Payment of {made.payment.invoice} {what}: {made.reference}, {made.status}",
            )
        ]
    )
    PolicyChange.note([PolicyImpact(PolicyPart.TENANTS, str(made.tenant_id))])
