"""What usage of past days should have cost by the price book as it stands now, and the ledger's
adjustments that make up for it. Records and what was posted for them stay as they are.

A day is rated whole, and what earlier ratings have adjusted is taken into account, so rating it
again posts nothing.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Sum

from gpu_workers.protocol.messages import Outcome, TokenUsage
from inference.charges import actual
from inference.models import UsageRecord
from inference.usage.rating.price_book import PriceBook
from tenants.billing.ledger.giving_back import give_back, held_after, merged, paid_by_in
from tenants.billing.ledger.posting import Balances, Entry, Posting, lock_balances, post
from tenants.billing.models import (
    AccountName,
    LedgerEntry,
    TransactionKind,
)
from tenants.billing.periods import month_of
from tenants.models import PolicyChange, PolicyImpact, PolicyPart

_CHUNK: Final = 5000
_FIELDS: Final = (
    "model",
    "adapter",
    "tier",
    "service_class",
    "outcome",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "cost_nanos",
    "arrived_at",
)
# By model and day.
_Sums = dict[tuple[str, date], int]


@dataclass(frozen=True, kw_only=True)
class Adjustment:
    """What one model's usage of one day has to be charged more (above zero) or less, in
    nano-dollars."""

    tenant_id: uuid.UUID
    model: str
    day: date
    nanos: int


def adjustments(tenant_id: uuid.UUID, first: date, last: date, book: PriceBook) -> list[Adjustment]:
    """Return what is still to be adjusted of a tenant's usage of these days (UTC), both
    included."""
    rated: defaultdict[tuple[str, date], int] = defaultdict(int)
    for row in _records(tenant_id, first, last):
        usage = TokenUsage(
            prompt_tokens=row.prompt_tokens,
            cached_tokens=row.cached_tokens,
            completion_tokens=row.completion_tokens,
        )
        prices = book.prices(
            model=row.model,
            adapter=row.adapter,
            tier=row.tier,
            service_class=row.service_class,
            at=row.arrived_at,
        )
        charge = actual(Outcome(row.outcome), usage, prices)
        rated[row.model, row.arrived_at.astimezone(UTC).date()] += charge.nanos - row.cost_nanos
    for key, nanos in _adjusted(tenant_id, first, last).items():
        rated[key] -= nanos
    return [
        Adjustment(tenant_id=tenant_id, model=model, day=day, nanos=nanos)
        for (model, day), nanos in sorted(rated.items())
        if nanos
    ]


def rerate(tenant_id: uuid.UUID, first: date, last: date, book: PriceBook) -> list[Adjustment]:
    """Post what is still to be adjusted, in one transaction of the ledger; return it. Runs in an
    `operator_scope`. More is owed; less goes back to what has paid for it (`giving_back`)."""
    with transaction.atomic():
        # Held first: two who rate the same days post once.
        held = lock_balances([tenant_id])[tenant_id]
        due = adjustments(tenant_id, first, last, book)
        if due:
            post(
                [
                    Posting(
                        tenant_id=tenant_id,
                        kind=TransactionKind.RE_RATING,
                        reference=f"re-rating:{uuid.uuid4()}",
                        memo=f"usage from {first} to {last} by the price book of now",
                        entries=_entries(tenant_id, due, held),
                    )
                ]
            )
            PolicyChange.note([PolicyImpact(PolicyPart.TENANTS, str(tenant_id))])
    return due


def tenants_with_usage(first: date, last: date) -> list[uuid.UUID]:
    begin, end = _period(first, last)
    records = UsageRecord.objects.filter(arrived_at__gte=begin, arrived_at__lt=end)
    found = records.order_by("tenant_id").values_list("tenant_id", flat=True).distinct()
    return list(found)


def _entries(tenant_id: uuid.UUID, due: Sequence[Adjustment], held: Balances) -> list[Entry]:
    """Return the entries of adjustments: months that cost more are owed, and what others cost less
    goes back to what paid for them."""
    entries = [
        Entry(account=AccountName.REVENUE, nanos=-each.nanos, model=each.model, day=each.day)
        for each in due
    ]
    by_month: defaultdict[date, int] = defaultdict(int)
    for each in due:
        by_month[month_of(each.day)] += each.nanos
    more = Entry(
        account=AccountName.RECEIVABLE, nanos=sum(nanos for nanos in by_month.values() if nanos > 0)
    )
    entries.append(more)
    held = held_after(held, [more])
    for month, nanos in sorted(by_month.items()):
        if nanos < 0:
            paid = paid_by_in(tenant_id, month, held)
            back = give_back(-nanos, held, paid, month=month)
            held = held_after(held, back)
            entries += back
    return merged(entries)


def _adjusted(tenant_id: uuid.UUID, first: date, last: date) -> _Sums:
    """Return what earlier ratings have charged more."""
    entries = (
        LedgerEntry.objects.filter(
            tenant=tenant_id,
            account=AccountName.REVENUE,
            transaction__kind=TransactionKind.RE_RATING,
            day__gte=first,
            day__lte=last,
        )
        .order_by()
        .values_list("model", "day")
        .annotate(nanos=Sum("nanos"))
    )
    return {
        (model, day): -nanos
        for model, day, nanos in entries
        if model is not None and day is not None
    }


def _records(tenant_id: uuid.UUID, first: date, last: date) -> "Iterator[UsageRecord]":
    begin, end = _period(first, last)
    records = UsageRecord.objects.arrived_between(begin, end).filter(tenant_id=tenant_id)
    return records.only(*_FIELDS).order_by("arrived_at").iterator(chunk_size=_CHUNK)


def _period(first: date, last: date) -> tuple[datetime, datetime]:
    begin = datetime.combine(first, time.min, UTC)
    return begin, datetime.combine(last, time.min, UTC) + timedelta(days=1)
