"""What the verbs of the ledger refuse before PostgreSQL has to: an amount, a reference or a memo
that is none, an account that would go below zero, money that was booked otherwise."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from django.core.exceptions import ValidationError

from tenants.billing.ledger.posting import Entry
from tenants.billing.models import (
    CREDITS,
    MAX_NANOS,
    AccountName,
    Invoice,
    InvoiceState,
    LedgerTransaction,
    Payment,
    TransactionKind,
)
from tenants.errors import Conflict
from tenants.money import dollars, dollars_and_cents

# Under which invoices, and with them usage and expiry, book by themselves.
INVOICE_REFERENCES: Final = "invoice:"
REVERSAL_REFERENCES: Final = "reversal:"
STORAGE_REFERENCES: Final = "storage:"
_RESERVED_REFERENCES: Final = (
    "usage:",
    "re-rating:",
    INVOICE_REFERENCES,
    REVERSAL_REFERENCES,
    STORAGE_REFERENCES,
    "expiry:",
)


def check_amount(nanos: int) -> None:
    """Raise `ValidationError` for an amount that is not above zero, or too large to be summed."""
    if nanos <= 0:
        raise ValidationError(
            f"An amount is above zero, got {dollars(nanos)}.", code="amount_not_positive"
        )
    if nanos > MAX_NANOS:
        raise ValidationError(
            f"An amount is at most {dollars(MAX_NANOS)}, got {dollars(nanos)}; book it in parts.",
            code="amount_too_large",
            params={"max_nanos": MAX_NANOS},
        )


def check_texts(kind: TransactionKind, reference: str, memo: str) -> None:
    """Raise `ValidationError` for a reference or memo of the wrong length, or a reference that the
    service books under by itself."""
    if not reference.strip() or len(reference) > 200:
        raise ValidationError(
            "A reference has 1 to 200 characters, e.g. a payment's number.", code="bad_reference"
        )
    if kind is not TransactionKind.EXPIRY and reference.startswith(_RESERVED_REFERENCES):
        raise ValidationError(
            "The reference %(reference)r begins like one of the service's own; say another one.",
            code="reference_reserved",
            params={"reference": reference},
        )
    if len(memo) > 500:
        raise ValidationError(
            f"A memo has at most 500 characters, got {len(memo)}.", code="memo_too_long"
        )


def check_floors(entries: Sequence[Entry], held: Mapping[AccountName, int]) -> None:
    """Raise `ValidationError` if an account would go below zero; the table refuses it too."""
    for entry in entries:
        account = entry.account
        taken = -entry.nanos if account is AccountName.RECEIVABLE else entry.nanos
        floored = account in (*CREDITS, AccountName.RECEIVABLE)
        if floored and taken > held[account]:
            raise ValidationError(
                f"The tenant's {account.label.lower()} is {dollars(held[account])}, "
                f"{dollars(taken)} cannot be taken from it.",
                code="insufficient_balance",
                params={"account": account, "held_nanos": held[account], "taken_nanos": taken},
            )


def check_paid_in(nanos: int, held: Mapping[AccountName, int]) -> None:
    """Raise `Conflict` for more than was ever paid in and not paid out again: whatever stands in
    the accounts, a gift is not money."""
    cash = max(0, held[AccountName.CASH])
    if nanos > cash:
        raise Conflict(
            f"Only {dollars(cash)} of what was paid in is left, {dollars(nanos)} cannot be paid "
            "out.",
            code="insufficient_credit",
            params={"free_nanos": cash, "asked_nanos": nanos},
        )


def check_paid_no_invoice(tenant_id: uuid.UUID, reference: str) -> None:
    """Raise `Conflict` if this payment was booked with its invoice already."""
    payment = Payment.objects.filter(tenant=tenant_id, reference=reference).first()
    if payment is not None:
        raise Conflict(
            f"The payment {reference!r} has paid {payment.invoice} already.",
            code="payment_used",
            param="reference",
            params={"invoice": str(payment.invoice)},
        )


def check_no_open_invoice(tenant_id: uuid.UUID) -> None:
    """Raise `Conflict` while an issued invoice waits for its payment."""
    issued = Invoice.objects.filter(tenant=tenant_id, state=InvoiceState.ISSUED)
    waiting = list(issued.order_by("period"))
    if waiting:
        named = [f"{each} ({dollars_and_cents(each.payable_nanos)})" for each in waiting]
        raise Conflict(
            f"To be paid: {', '.join(named)}. Mark the one that was as paid (`manage.py invoices "
            "pay`); money that is for none of them is booked on account (`--on-account`).",
            code="invoice_unpaid",
            params={"unpaid": {str(each): each.payable_nanos for each in waiting}},
        )


def reference_taken(booked: LedgerTransaction) -> Conflict:
    """Return the refusal to book another transaction under the same reference."""
    return Conflict(
        f"The reference {booked.reference!r} is that of another transaction: {booked.kind} of "
        f"{dollars(booked.size_nanos)}. Say another one.",
        code="reference_taken",
        param="reference",
        params={"kind": booked.kind, "nanos": booked.size_nanos},
    )
