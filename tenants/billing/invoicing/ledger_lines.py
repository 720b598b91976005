"""Lines for what the ledger has booked beside usage: adjustments, and money beside invoices.

Each transaction is shown once, by what it has changed of what the tenant owes. A payment of an
invoice changes nothing that the invoice has not told; but what of it was more than was owed has
become credit, which pays for usage to come, so it stands here against that. A payment on account
lessens the invoice, but for what it has paid of one.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, Final

from django.db.models import Exists, OuterRef, Q

from tenants.billing.ledger.refusals import INVOICE_REFERENCES
from tenants.billing.models import (
    CREDITS,
    AccountName,
    InvoiceLine,
    InvoiceState,
    LedgerEntry,
    LedgerTransaction,
    LineKind,
    Payment,
    TransactionKind,
)

CREDIT_NAMES: Final = {
    AccountName.PROMOTIONAL_CREDIT: "promotional credit",
    AccountName.SLA_CREDIT: "service level credit",
    AccountName.PREPAID_CREDIT: "prepaid credit",
}
_OWED: Final = (AccountName.RECEIVABLE, AccountName.BAD_DEBT)
_ADJUSTING: Final = (
    TransactionKind.ADJUSTMENT,
    TransactionKind.RE_RATING,
    TransactionKind.REVERSAL,
    TransactionKind.STORAGE,
)


def ledger_lines(tenant_ids: Sequence[uuid.UUID], period: date) -> Iterator[InvoiceLine]:
    """Yield a line for each adjustment and payment in the ledger that no standing invoice shows."""
    kept = LedgerEntry.objects.filter(
        transaction=OuterRef("pk"), account=AccountName.PREPAID_CREDIT, nanos__lt=0
    )
    told = Q(reference__startswith=INVOICE_REFERENCES) & ~Exists(kept)
    posted = (
        LedgerTransaction.objects.filter(tenant__in=tenant_ids)
        .filter(Q(kind__in=_ADJUSTING) | Q(kind=TransactionKind.PAYMENT) & ~told)
        .exclude(id__in=_shown(tenant_ids))
        .order_by("at", "sequence")
        .prefetch_related("entries")
    )
    paid_with = {
        payment.ledger_transaction_id: payment
        for payment in Payment.objects.filter(
            tenant__in=tenant_ids, ledger_transaction_id__isnull=False
        ).select_related("invoice")
    }
    for transaction in posted:
        moved: defaultdict[AccountName, int] = defaultdict(int)
        for entry in transaction.entries.all():
            moved[AccountName(entry.account)] += entry.nanos
        yield from _lines(transaction, period, moved, paid_with.get(transaction.id))


def _shown(tenant_ids: Sequence[uuid.UUID]) -> Any:
    return (
        InvoiceLine.objects.filter(tenant__in=tenant_ids, ledger_transaction_id__isnull=False)
        .exclude(invoice__state=InvoiceState.VOID)
        .values("ledger_transaction_id")
    )


def _lines(
    transaction: LedgerTransaction,
    period: date,
    moved: dict[AccountName, int],
    paid_with: Payment | None,
) -> Iterator[InvoiceLine]:
    if transaction.kind == TransactionKind.PAYMENT:
        kind, given_to = LineKind.PAYMENT, "Kept as"
        what, text, nanos = _paid(transaction, moved[AccountName.CASH], paid_with)
    else:
        kind, given_to = LineKind.ADJUSTMENT, "Given back to"
        what = text = transaction.memo or transaction.kind.replace("_", " ").capitalize()
        nanos = sum(moved[name] for name in (*CREDITS, *_OWED))
    if nanos:
        yield _line(transaction, period, kind, text, nanos)
    for name in CREDITS:
        if moved[name]:
            verb = "Paid by" if moved[name] > 0 else given_to
            text = f"{verb} {CREDIT_NAMES[name]}: {what}"
            yield _line(transaction, period, LineKind.PAID_BY_CREDIT, text, -moved[name], name)


def _paid(
    transaction: LedgerTransaction, cash_nanos: int, paid_with: Payment | None
) -> tuple[str, str, int]:
    """Return what a payment is called, its text on a line of its own, and the nano-dollars of it
    that no invoice shows."""
    if transaction.reference.startswith(INVOICE_REFERENCES):
        return transaction.memo, "", 0
    what = f"Payment {transaction.reference}"
    if paid_with is None:
        return what, what, -cash_nanos
    text = f"{what}, what {paid_with.invoice} has left of it"
    return what, text, paid_with.amount_nanos - cash_nanos


def _line(
    transaction: LedgerTransaction,
    period: date,
    kind: LineKind,
    text: str,
    nanos: int,
    account: AccountName | None = None,
) -> InvoiceLine:
    return InvoiceLine(
        tenant_id=transaction.tenant_id,
        kind=kind,
        period=period,
        account="" if account is None else account.value,
        description=text[:300],
        ledger_transaction_id=transaction.id,
        amount_nanos=nanos,
    )
