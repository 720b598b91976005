"""What a tenant's people read of its ledger. Call these inside the tenant's scope."""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

from django.db.models import Count, Exists, F, Max, OuterRef, Prefetch, Q, QuerySet, Sum
from django.db.models.functions import TruncDate

from tenants.billing.models import (
    CREDITS,
    AccountName,
    LedgerAccount,
    LedgerEntry,
    LedgerTransaction,
    TransactionKind,
    WaitingCharge,
)
from tenants.billing.periods import start_of
from tenants.pagination import (
    NEWEST_SEQUENCE_FIRST,
    Order,
    Page,
    cursor_of,
    page,
    read_cursor,
)

TRANSACTIONS_ORDER: Final = Order(
    name="transactions", fields=NEWEST_SEQUENCE_FIRST, is_descending=True
)
DAYS_ORDER: Final = Order(
    name="days of transactions", fields={"day": date.fromisoformat}, is_descending=True
)
# Of promotions: whoever was given more reads the transactions.
_MOST: Final = 20


@dataclass(frozen=True, kw_only=True)
class DaySum:
    """The transactions of a kind on a UTC day; `only` is the one where there is no other."""

    day: date
    kind: TransactionKind
    count: int
    requests: int
    credit_change_nanos: int
    owed_change_nanos: int
    only: LedgerTransaction | None


@dataclass(frozen=True, kw_only=True)
class PromotionLeft:
    """A promotion of which `left_nanos` can still be spent; `expires_at` None: for ever."""

    given_at: datetime
    expires_at: datetime | None
    given_nanos: int
    left_nanos: int


def list_transactions(
    *,
    kind: TransactionKind | None = None,
    day: date | None = None,
    limit: int,
    cursor: str | None = None,
) -> Page[LedgerTransaction]:
    """Return a page of transactions, of a kind or a UTC day alone, with their entries, the newest
    first. Raises `BadCursor`."""
    rows = _with_entries()
    if day is not None:
        rows = rows.filter(at__gte=start_of(day), at__lt=start_of(day) + timedelta(days=1))
    if kind is not None:
        rows = rows.filter(kind=kind)
    return page(rows, TRANSACTIONS_ORDER, limit=limit, cursor=cursor)


def list_days(*, limit: int, cursor: str | None = None) -> Page[DaySum]:
    """Return the transactions of so many UTC days that have any, the newest day first, those of a
    kind as one. Raises `BadCursor`."""
    before = None if cursor is None else read_cursor(DAYS_ORDER, cursor)["day"]
    days = _days_with_any(before, limit + 1)
    shown = days[:limit]
    if not shown:
        return Page(rows=[], next_cursor=None)
    has_more = len(days) > limit
    return Page(
        rows=_sums(start_of(shown[-1]), start_of(shown[0] + timedelta(days=1))),
        next_cursor=cursor_of(DAYS_ORDER, {"day": shown[-1]}) if has_more else None,
    )


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


def _days_with_any(before: date | None, count: int) -> list[date]:
    """Look for each day in the index: one may have thousands of transactions."""
    found: list[date] = []
    rows = LedgerTransaction.objects.order_by("-at").values_list("at", flat=True)
    while len(found) < count:
        earlier = rows if before is None else rows.filter(at__lt=start_of(before))
        latest = earlier.first()
        if latest is None:
            break
        before = latest.astimezone(UTC).date()
        found.append(before)
    return found


def _sums(since: datetime, until: datetime) -> list[DaySum]:
    entries = LedgerEntry.objects.filter(transaction__at__gte=since, transaction__at__lt=until)
    groups = list(
        entries.order_by()
        .values(date=TruncDate("transaction__at", tzinfo=UTC), kind=F("transaction__kind"))
        .annotate(
            count=Count("transaction", distinct=True),
            last=Max("transaction__sequence"),
            credit=Sum("nanos", filter=Q(account__in=CREDITS), default=0),
            owed=Sum("nanos", filter=Q(account=AccountName.RECEIVABLE), default=0),
            requests_sum=Sum("requests", default=0),
        )
        .order_by("-date", "-last")
    )
    alone = [each["last"] for each in groups if each["count"] == 1]
    single = {each.sequence: each for each in _with_entries().filter(sequence__in=alone)}
    return [
        DaySum(
            day=each["date"],
            kind=TransactionKind(each["kind"]),
            count=each["count"],
            requests=each["requests_sum"],
            credit_change_nanos=-each["credit"],
            owed_change_nanos=each["owed"],
            only=single.get(each["last"]),
        )
        for each in groups
    ]


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
