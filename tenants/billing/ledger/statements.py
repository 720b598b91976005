"""What a tenant's people read of its ledger. Call these inside the tenant's scope."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from django.db.models import Exists, F, OuterRef, Prefetch, QuerySet

from tenants.billing.models import (
    AccountName,
    LedgerAccount,
    LedgerEntry,
    LedgerTransaction,
    TransactionKind,
    WaitingCharge,
)
from tenants.pagination import NEWEST_SEQUENCE_FIRST, Order, Page, page

TRANSACTIONS_ORDER: Final = Order(
    name="transactions", fields=NEWEST_SEQUENCE_FIRST, is_descending=True
)
# Of promotions: whoever was given more reads the transactions.
_MOST: Final = 20


@dataclass(frozen=True, kw_only=True)
class PromotionLeft:
    """A promotion of which `left_nanos` can still be spent; `expires_at` None: for ever."""

    given_at: datetime
    expires_at: datetime | None
    given_nanos: int
    left_nanos: int


def list_transactions(
    *, kind: TransactionKind | None = None, limit: int, cursor: str | None = None
) -> Page[LedgerTransaction]:
    """Return a page of transactions with their entries, the newest first. Raises `BadCursor`."""
    rows = _with_entries()
    if kind is not None:
        rows = rows.filter(kind=kind)
    return page(rows, TRANSACTIONS_ORDER, limit=limit, cursor=cursor)


def find_transaction(transaction_id: uuid.UUID) -> LedgerTransaction:
    """Return a transaction with its entries. Raises `LedgerTransaction.DoesNotExist`."""
    return _with_entries().get(id=transaction_id)


def promotions_left(now: datetime | None = None) -> list[PromotionLeft]:
    """Return the promotions that are not used up, the first to end first.

    What is spent is taken of the promotion that ends first, so what is left is of those that end
    last (`credit.expire_promotions`)."""
    account = LedgerAccount.objects.filter(name=AccountName.PROMOTIONAL_CREDIT).order_by()
    # It is what waiting usage will be paid by first.
    waiting = WaitingCharge.objects.order_by().values_list(-F("nanos"))
    nanos = sum(
        amount for (amount,) in account.values_list("balance_nanos").union(waiting, all=True)
    )
    if nanos <= 0:
        return []
    return sorted(_dealt(nanos, now or datetime.now(UTC)), key=_end)


def _with_entries() -> "QuerySet[LedgerTransaction]":
    entries = Prefetch("entries", LedgerEntry.objects.order_by("position"))
    return LedgerTransaction.objects.prefetch_related(entries)


def _dealt(nanos: int, now: datetime) -> Iterator[PromotionLeft]:
    """Deal what is left out to the promotions, those that end last first."""
    came = LedgerEntry.objects.filter(
        transaction=OuterRef("pk"), account=AccountName.PROMOTIONAL_CREDIT, nanos__lt=0
    )
    kinds = [TransactionKind.PROMOTION, TransactionKind.ADJUSTMENT, TransactionKind.RE_RATING]
    given = _with_entries().filter(Exists(came), kind__in=kinds).exclude(expires_at__lte=now)
    for each in given.order_by(F("expires_at").desc(nulls_first=True), "-at")[:_MOST]:
        came_nanos = -sum(
            entry.nanos
            for entry in each.entries.all()
            if entry.account == AccountName.PROMOTIONAL_CREDIT
        )
        left = min(nanos, came_nanos)
        if left <= 0:
            return
        nanos -= left
        yield PromotionLeft(
            given_at=each.at,
            expires_at=each.expires_at,
            given_nanos=came_nanos,
            left_nanos=left,
        )


def _end(promotion: PromotionLeft) -> datetime:
    return promotion.expires_at or datetime.max.replace(tzinfo=UTC)
