"""For fsck: what payment providers told that nobody has looked into, and what they took back."""

from collections.abc import Iterator

from django.db.models import Sum

from tenants.billing.models import (
    LedgerHead,
    LedgerTransaction,
    Payment,
    PaymentReversal,
    ProviderEvent,
    TransactionKind,
)
from tenants.billing.payments.reversals import reversal_reference


def payment_problems() -> Iterator[str]:
    yield from event_problems()
    yield from reversal_problems()


def event_problems() -> Iterator[str]:
    """Report puzzling events that no operator has resolved."""
    for event in ProviderEvent.objects.unresolved().order_by("id"):
        yield (
            f"The {event.provider} event {event.event_id} ({event.kind}) of "
            f"{event.received_at:%Y-%m-%d} does not fit our books, and is not resolved: "
            f"{event.reason}"
        )


def reversal_problems() -> Iterator[str]:
    """Report reversals that are not in the ledger with their amount, and payments of which more was
    taken than they were."""
    kind = TransactionKind.REVERSAL
    posted = {
        (each.tenant_id, each.reference): each.size_nanos
        # By tenant, so that an index finds them among all the usage.
        for each in LedgerTransaction.objects.filter(
            tenant__in=LedgerHead.objects.values("tenant"), kind=kind
        ).prefetch_related("entries")
    }
    for reversal in PaymentReversal.objects.order_by("recorded_at", "id"):
        found = posted.pop((reversal.tenant_id, reversal_reference(reversal)), 0)
        if found != abs(reversal.amount_nanos):
            yield (
                f"The reversal {reversal.id} of a payment is of {reversal.amount_nanos} "
                f"nano-dollars, the ledger has {found} of it."
            )
    for tenant_id, reference in posted:
        yield f"The ledger of tenant {tenant_id} has {reference!r}, of which there is no record."
    taken = Payment.objects.annotate(taken=Sum("reversals__amount_nanos", default=0))
    for payment in taken.exclude(taken=0).order_by("id"):
        if not 0 < payment.taken <= payment.amount_nanos:
            yield (
                f"Of the payment {payment}, {payment.amount_nanos} nano-dollars, "
                f"{payment.taken} are taken back."
            )
