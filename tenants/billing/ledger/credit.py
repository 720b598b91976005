"""Money and credit that come and go: the verbs of the ledger beside usage.

Each is booked once for a tenant and a `reference`: booking it again gives back what was booked, and
raises `Conflict` where that is another amount. Amounts are nano-dollars above zero. All run in an
`operator_scope`; those that take credit away first place a hold on it, so that no open request can
spend it meanwhile.
"""

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Final

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from tenants.billing.ledger import holds
from tenants.billing.ledger.posting import Balances, Entry, Posting, lock_balances, post
from tenants.billing.models import (
    CREDITS,
    AccountName,
    Invoice,
    InvoiceState,
    LedgerAccount,
    LedgerEntry,
    LedgerTransaction,
    Payment,
    TransactionKind,
)
from tenants.errors import Conflict
from tenants.isolation.scoping import operator_scope
from tenants.models.policy_change import PolicyChange, PolicyImpact, PolicyPart
from tenants.money import dollars, dollars_and_cents

_Entries = Callable[[Balances], Sequence[Entry]]

# What was used before a promotion ended may be on its way to the ledger for so long.
EXPIRY_GRACE: Final = timedelta(hours=1)
# Sums must hold a great many.
MAX_NANOS: Final = 10**17
# Under which invoices, and with them usage and expiry, book by themselves.
INVOICE_REFERENCES: Final = "invoice:"
_RESERVED_REFERENCES: Final = ("usage:", "re-rating:", INVOICE_REFERENCES, "expiry:")
_EXPIRY: Final = "expiry of promotions"


def top_up(
    tenant_id: uuid.UUID, nanos: int, *, reference: str, memo: str = ""
) -> LedgerTransaction:
    """Book credit that the tenant has paid for."""
    return _book(
        tenant_id,
        TransactionKind.TOP_UP,
        reference,
        memo,
        lambda _: _move(AccountName.CASH, AccountName.PREPAID_CREDIT, nanos),
    )


def grant_promotion(
    tenant_id: uuid.UUID,
    nanos: int,
    *,
    reference: str,
    memo: str = "",
    expires_at: datetime | None = None,
) -> LedgerTransaction:
    """Give credit away; what is left of it at `expires_at` is taken back within two hours. Raises
    `ValidationError` for a time that has passed."""
    if expires_at is not None and expires_at <= timezone.now():
        raise ValidationError("Credit that has expired is none; say a time to come.")
    return _book(
        tenant_id,
        TransactionKind.PROMOTION,
        reference,
        memo,
        lambda _: _move(AccountName.PROMOTION_EXPENSE, AccountName.PROMOTIONAL_CREDIT, nanos),
        expires_at=expires_at,
    )


def grant_sla_credit(
    tenant_id: uuid.UUID, nanos: int, *, reference: str, memo: str = ""
) -> LedgerTransaction:
    """Book credit for a promise that was not kept."""
    return _book(
        tenant_id,
        TransactionKind.SLA_CREDIT,
        reference,
        memo,
        lambda _: _move(AccountName.SLA_EXPENSE, AccountName.SLA_CREDIT, nanos),
    )


def pay(
    tenant_id: uuid.UUID,
    nanos: int,
    *,
    reference: str,
    memo: str = "",
    is_on_account: bool = False,
) -> LedgerTransaction:
    """Book a payment that is not for an invoice (`invoices.pay`); the tenant's next invoice is
    lessened by it.

    Raises `Conflict` while an issued invoice waits for its payment, which this may well be, unless
    the money `is_on_account`, for none of them.
    """
    with transaction.atomic():
        lock_balances([tenant_id])
        if not is_on_account and _booked(tenant_id, reference) is None:
            _check_no_open_invoice(tenant_id)
        return _book(
            tenant_id,
            TransactionKind.PAYMENT,
            reference,
            memo,
            lambda held: payment_entries(nanos, held),
        )


def payment_entries(nanos: int, held: Balances) -> list[Entry]:
    """Return the entries of a payment: it pays what is owed first, then recovers what was written
    off; the rest is prepaid credit. So it is booked whatever has become of what was owed."""
    _check_amount(nanos)
    owed = min(nanos, held[AccountName.RECEIVABLE])
    recovered = min(nanos - owed, held[AccountName.BAD_DEBT])
    entries = [
        Entry(account=AccountName.CASH, nanos=nanos),
        Entry(account=AccountName.RECEIVABLE, nanos=-owed),
        Entry(account=AccountName.BAD_DEBT, nanos=-recovered),
        Entry(account=AccountName.PREPAID_CREDIT, nanos=owed + recovered - nanos),
    ]
    return [entry for entry in entries if entry.nanos]


def adjust(tenant_id: uuid.UUID, nanos: int, *, reference: str, memo: str) -> LedgerTransaction:
    """Charge more (above zero), which is owed, or less (below), which pays what is owed and then
    is credit. The memo says why; raises `ValidationError` without one."""
    if not memo.strip():
        raise ValidationError("Say why, in the memo.")
    return _book(
        tenant_id,
        TransactionKind.ADJUSTMENT,
        reference,
        memo,
        lambda held: (
            _move(AccountName.RECEIVABLE, AccountName.ADJUSTMENTS, nanos)
            if nanos > 0
            else _give_back(AccountName.ADJUSTMENTS, -nanos, held)
        ),
    )


def write_off(tenant_id: uuid.UUID, nanos: int, *, reference: str, memo: str) -> LedgerTransaction:
    """Give up what is owed."""
    return _book(
        tenant_id,
        TransactionKind.WRITE_OFF,
        reference,
        memo,
        lambda _: _move(AccountName.BAD_DEBT, AccountName.RECEIVABLE, nanos),
    )


def refund(
    tenant_id: uuid.UUID, nanos: int, *, reference: str, memo: str = ""
) -> LedgerTransaction:
    """Pay prepaid credit back. Raises `Conflict` where open requests have reserved a part of it."""
    with transaction.atomic():
        # First of all: what is left must not change between the look at it and its being kept.
        lock_balances([tenant_id])
        booked = _booked(tenant_id, reference)
        if booked is not None:
            return _same(booked, TransactionKind.REFUND, nanos)
        with _held(tenant_id, nanos) as free:
            if free < nanos:
                raise Conflict(
                    f"Of the credit only {dollars(free)} is not spent or reserved by open "
                    f"requests, and {dollars(nanos)} was asked for."
                )
            return _book(
                tenant_id,
                TransactionKind.REFUND,
                reference,
                memo,
                lambda _: _move(AccountName.PREPAID_CREDIT, AccountName.CASH, nanos),
            )


def expire_promotions(now: datetime | None = None) -> int:
    """Take back what is left of promotions that have ended; returns from how many tenants. What is
    spent is taken of the promotion that ends first, so what is left is of those that end last."""
    now = now or timezone.now()
    with operator_scope(_EXPIRY):
        due = LedgerTransaction.objects.filter(
            kind=TransactionKind.PROMOTION, expires_at__lte=now - EXPIRY_GRACE
        )
        holders = LedgerAccount.objects.filter(
            tenant__in=due.order_by().values("tenant"),
            name=AccountName.PROMOTIONAL_CREDIT,
            balance_nanos__gt=0,
        )
        tenants = list(holders.order_by("tenant").values_list("tenant", flat=True))
    expired = 0
    for tenant_id in tenants:
        with operator_scope(_EXPIRY):
            expired += _expire(tenant_id, now)
    return expired


def _expire(tenant_id: uuid.UUID, now: datetime) -> bool:
    ended = _ended(tenant_id, lock_balances([tenant_id])[tenant_id], now)
    if not ended:
        return False
    with _held(tenant_id, ended) as free:
        # What open requests have reserved is theirs still, and is looked at again.
        if not free:
            return False
        _book(
            tenant_id,
            TransactionKind.EXPIRY,
            f"expiry:{uuid.uuid4()}",
            "",
            lambda _: _move(AccountName.PROMOTIONAL_CREDIT, AccountName.PROMOTION_EXPENSE, free),
        )
    return True


def _ended(tenant_id: uuid.UUID, held: Balances, now: datetime) -> int:
    lasting = LedgerEntry.objects.filter(
        tenant=tenant_id,
        account=AccountName.PROMOTIONAL_CREDIT,
        transaction__kind=TransactionKind.PROMOTION,
    ).exclude(transaction__expires_at__lte=now - EXPIRY_GRACE)
    lasting_nanos = -sum(lasting.values_list("nanos", flat=True))
    return max(0, held[AccountName.PROMOTIONAL_CREDIT] - lasting_nanos)


# Booking ----------------------------------------------------------------------------------------


def _book(
    tenant_id: uuid.UUID,
    kind: TransactionKind,
    reference: str,
    memo: str,
    entries: _Entries,
    *,
    expires_at: datetime | None = None,
) -> LedgerTransaction:
    _check_texts(kind, reference, memo.strip())
    with transaction.atomic():
        held = lock_balances([tenant_id])[tenant_id]
        posting = Posting(
            tenant_id=tenant_id,
            kind=kind,
            reference=reference,
            entries=entries(held),
            memo=memo.strip(),
            expires_at=expires_at,
        )
        booked = _booked(tenant_id, reference)
        if booked is not None:
            return _same(booked, kind, _size(posting.entries))
        if kind in {TransactionKind.TOP_UP, TransactionKind.PAYMENT}:
            _check_paid_no_invoice(tenant_id, reference)
        _check_floors(posting.entries, held)
        post([posting])
        PolicyChange.note([PolicyImpact(PolicyPart.TENANTS, str(tenant_id))])
        return LedgerTransaction.objects.get(tenant=tenant_id, reference=reference)


def _booked(tenant_id: uuid.UUID, reference: str) -> LedgerTransaction | None:
    return LedgerTransaction.objects.filter(tenant=tenant_id, reference=reference).first()


def _same(booked: LedgerTransaction, kind: TransactionKind, nanos: int) -> LedgerTransaction:
    if booked.kind != kind or booked.size_nanos != nanos:
        raise Conflict(
            f"The reference {booked.reference!r} is that of another transaction: {booked.kind} of "
            f"{dollars(booked.size_nanos)}. Say another one.",
            param="reference",
        )
    return booked


def _check_paid_no_invoice(tenant_id: uuid.UUID, reference: str) -> None:
    """Raise `Conflict` if this payment was booked with its invoice already."""
    payment = Payment.objects.filter(tenant=tenant_id, reference=reference).first()
    if payment is not None:
        raise Conflict(
            f"The payment {reference!r} has paid {payment.invoice} already.", param="reference"
        )


def _check_no_open_invoice(tenant_id: uuid.UUID) -> None:
    waiting = Invoice.objects.filter(tenant=tenant_id, state=InvoiceState.ISSUED)
    named = [
        f"{invoice} ({dollars_and_cents(invoice.payable_nanos)})"
        for invoice in waiting.order_by("period")
    ]
    if named:
        raise Conflict(
            f"To be paid: {', '.join(named)}. Say which was with `manage.py invoices pay`; money "
            "that is for none of them is booked with --on-account."
        )


def _size(entries: Sequence[Entry]) -> int:
    return sum(entry.nanos for entry in entries if entry.nanos > 0)


def _check_floors(entries: Sequence[Entry], held: Mapping[AccountName, int]) -> None:
    """Raise `ValidationError` if an account would go below zero; the table refuses it too."""
    for entry in entries:
        account = entry.account
        taken = -entry.nanos if account is AccountName.RECEIVABLE else entry.nanos
        floored = account in (*CREDITS, AccountName.RECEIVABLE)
        if floored and taken > held[account]:
            raise ValidationError(
                f"The tenant's {account.label.lower()} is {dollars(held[account])}, "
                f"{dollars(taken)} cannot be taken from it."
            )


def _check_amount(nanos: int) -> None:
    if nanos <= 0:
        raise ValidationError(f"An amount is above zero, got {dollars(nanos)}.")
    if nanos > MAX_NANOS:
        raise ValidationError(
            f"An amount is at most {dollars(MAX_NANOS)}, got {dollars(nanos)}; book it in parts."
        )


def _check_texts(kind: TransactionKind, reference: str, memo: str) -> None:
    if not reference.strip() or len(reference) > 200:
        raise ValidationError("A reference has 1 to 200 characters, e.g. a payment's number.")
    if kind is not TransactionKind.EXPIRY and reference.startswith(_RESERVED_REFERENCES):
        raise ValidationError(
            f"The reference {reference!r} begins like one of the service's own; say another one."
        )
    if len(memo) > 500:
        raise ValidationError(f"A memo has at most 500 characters, got {len(memo)}.")


def _move(debit: AccountName, credit: AccountName, nanos: int) -> list[Entry]:
    _check_amount(nanos)
    return [Entry(account=debit, nanos=nanos), Entry(account=credit, nanos=-nanos)]


def _give_back(debit: AccountName, nanos: int, held: Balances) -> list[Entry]:
    """Return the entries that set an amount against what is owed first; the rest is prepaid
    credit."""
    _check_amount(nanos)
    owed = min(nanos, held[AccountName.RECEIVABLE])
    entries = [
        Entry(account=debit, nanos=nanos),
        Entry(account=AccountName.RECEIVABLE, nanos=-owed),
        Entry(account=AccountName.PREPAID_CREDIT, nanos=owed - nanos),
    ]
    return [entry for entry in entries if entry.nanos]


@contextmanager
def _held(tenant_id: uuid.UUID, nanos: int) -> Iterator[int]:
    """Hold so much of the credit, or what is left of it, until it is booked and gateways know, or
    it is given up. Yields how many nano-dollars are held."""
    _check_amount(nanos)
    hold_id = holds.new_hold_id()
    held_nanos = holds.place_hold(tenant_id, hold_id, nanos)
    try:
        yield held_nanos
    except BaseException:
        holds.release_hold(tenant_id, hold_id)
        raise
    # After the snapshot's own hook, so that the limit is lower before this is free.
    transaction.on_commit(lambda: holds.release_hold(tenant_id, hold_id), robust=True)
