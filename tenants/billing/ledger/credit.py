"""Money and credit that come and go: the verbs of the ledger beside usage.

Each is booked once for a tenant and a `reference`: booking it again gives back what was booked, and
raises `Conflict` where that is another amount. Amounts are nano-dollars above zero. All run in an
`operator_scope`; those that take credit away first place a hold on it, so that no open request can
spend it meanwhile.
"""

import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from tenants.billing.ledger import holds
from tenants.billing.ledger.giving_back import give_back, merged, paid_by
from tenants.billing.ledger.posting import Balances, Entry, Posting, lock_balances, post
from tenants.billing.ledger.refusals import (
    check_amount,
    check_floors,
    check_no_open_invoice,
    check_paid_in,
    check_paid_no_invoice,
    check_texts,
    reference_taken,
)
from tenants.billing.models import (
    CREDITS,
    AccountName,
    LedgerAccount,
    LedgerEntry,
    LedgerTransaction,
    TransactionKind,
)
from tenants.errors import Conflict
from tenants.isolation.scoping import operator_scope
from tenants.models.policy_change import PolicyChange, PolicyImpact, PolicyPart
from tenants.money import dollars

_Entries = Callable[[Balances], Sequence[Entry]]

# What was used before a promotion ended may be on its way to the ledger for so long.
EXPIRY_GRACE: Final = timedelta(hours=1)
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
        raise ValidationError(
            "Credit that has expired is none; say a time to come.", code="in_past"
        )
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
            check_no_open_invoice(tenant_id)
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
    check_amount(nanos)
    owed = min(nanos, held[AccountName.RECEIVABLE])
    recovered = min(nanos - owed, held[AccountName.BAD_DEBT])
    entries = [
        Entry(account=AccountName.CASH, nanos=nanos),
        Entry(account=AccountName.RECEIVABLE, nanos=-owed),
        Entry(account=AccountName.BAD_DEBT, nanos=-recovered),
        Entry(account=AccountName.PREPAID_CREDIT, nanos=owed + recovered - nanos),
    ]
    return [entry for entry in entries if entry.nanos]


def credit_entries(nanos: int, held: Balances) -> list[Entry]:
    """Return the entries that pay what is owed with credit, in the order in which it is spent."""
    check_amount(nanos)
    left, entries = nanos, []
    for account in CREDITS:
        part = min(left, held[account])
        entries.append(Entry(account=account, nanos=part))
        left -= part
    entries.append(Entry(account=AccountName.RECEIVABLE, nanos=left - nanos))
    if left:
        raise Conflict(
            f"Credit of {dollars(nanos - left)} does not pay {dollars(nanos)}.",
            code="insufficient_credit",
        )
    return merged(entries)


def settle_with_credit(tenant_id: uuid.UUID, nanos: int, *, memo: str) -> LedgerTransaction:
    """Pay what is owed, on no invoice yet, with credit. The caller holds that credit."""
    return _book(
        tenant_id,
        TransactionKind.ADJUSTMENT,
        f"settlement:{uuid.uuid4()}",
        memo,
        lambda held: credit_entries(nanos, held),
    )


def adjust(tenant_id: uuid.UUID, nanos: int, *, reference: str, memo: str) -> LedgerTransaction:
    """Charge more (above zero), which is owed, or less (below), which goes where `giving_back`
    says: what nobody has paid for is a gift. The memo says why; raises `ValidationError` without
    one."""
    if not memo.strip():
        raise ValidationError("Say why, in the memo.", code="memo_required")
    return _book(
        tenant_id,
        TransactionKind.ADJUSTMENT,
        reference,
        memo,
        lambda held: (
            _move(AccountName.RECEIVABLE, AccountName.ADJUSTMENTS, nanos)
            if nanos > 0
            else _lessen(-nanos, held)
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
    """Pay prepaid credit back. Raises `Conflict` where open requests have reserved a part of it,
    or where less was ever paid in and not paid out again."""
    with transaction.atomic():
        # First of all: what is left must not change between the look at it and its being kept.
        lock_balances([tenant_id])
        booked = _booked(tenant_id, reference)
        if booked is not None:
            return _same(booked, TransactionKind.REFUND, nanos)
        check_amount(nanos)
        with holds.hold(tenant_id, nanos) as free:
            if free < nanos:
                raise Conflict(
                    f"Of the credit only {dollars(free)} is not spent or reserved by open "
                    f"requests, and {dollars(nanos)} was asked for.",
                    code="insufficient_credit",
                    params={"free_nanos": free, "asked_nanos": nanos},
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
    with holds.hold(tenant_id, ended) as free:
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
    # What came back of a promotion that has ended is lasting as well: it was not the tenant who
    # waited for so long.
    lasting = LedgerEntry.objects.filter(
        tenant=tenant_id, account=AccountName.PROMOTIONAL_CREDIT, nanos__lt=0
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
    check_texts(kind, reference, memo.strip())
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
            check_paid_no_invoice(tenant_id, reference)
        check_floors(posting.entries, held)
        if kind is TransactionKind.REFUND:
            check_paid_in(_size(posting.entries), held)
        post([posting])
        PolicyChange.note([PolicyImpact(PolicyPart.TENANTS, str(tenant_id))])
        return LedgerTransaction.objects.get(tenant=tenant_id, reference=reference)


def _booked(tenant_id: uuid.UUID, reference: str) -> LedgerTransaction | None:
    return LedgerTransaction.objects.filter(tenant=tenant_id, reference=reference).first()


def _same(booked: LedgerTransaction, kind: TransactionKind, nanos: int) -> LedgerTransaction:
    if booked.kind != kind or booked.size_nanos != nanos:
        raise reference_taken(booked)
    return booked


def _size(entries: Sequence[Entry]) -> int:
    return sum(entry.nanos for entry in entries if entry.nanos > 0)


def _move(debit: AccountName, credit: AccountName, nanos: int) -> list[Entry]:
    check_amount(nanos)
    return [Entry(account=debit, nanos=nanos), Entry(account=credit, nanos=-nanos)]


def _lessen(nanos: int, held: Balances) -> list[Entry]:
    check_amount(nanos)
    return merged(
        [
            Entry(account=AccountName.ADJUSTMENTS, nanos=nanos),
            *give_back(nanos, held, paid_by(held)),
        ]
    )
