"""What usage of past days should have cost by the price book as it stands now, and the ledger's
adjustments that make up for it. Records and what was posted for them stay as they are.

The book as it stands: a correction where one covers the moment of arrival, the newest of them; else
the price that held then; and the multiplier that the tier had then. A day is rated whole, and what
earlier ratings have adjusted is taken into account, so rating it again posts nothing.
"""

import uuid
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Sum

from gpu_workers.protocol.messages import Outcome, Prices, TokenUsage
from gpu_workers.protocol.policy import WHOLE, PricePolicy
from inference.charges import actual, tier_prices
from inference.models import UsageRecord
from tenants.billing.ledger.posting import Balances, Entry, Posting, lock_balances, post
from tenants.billing.models import (
    AccountName,
    LedgerEntry,
    Price,
    PriceCorrection,
    TierMultiplier,
    TransactionKind,
)
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


class PriceBook:
    """The price book as it stands, in memory. Read in an `operator_scope`."""

    def __init__(self) -> None:
        self._prices: defaultdict[str, list[PricePolicy]] = defaultdict(list)
        for price in Price.objects.all():
            self._prices[price.model].append(price.to_policy())
        self._corrections: defaultdict[str, list[PricePolicy]] = defaultdict(list)
        for correction in PriceCorrection.objects.order_by("-created_at"):
            self._corrections[correction.model].append(correction.to_policy())
        self._multipliers: defaultdict[str, list[tuple[datetime, int]]] = defaultdict(list)
        for row in TierMultiplier.objects.order_by("effective_from", "id"):
            self._multipliers[row.tier].append((row.effective_from, row.permille))

    def prices(
        self, *, model: str, adapter: str, tier: str, service_class: str, at: datetime
    ) -> Prices:
        """Return what a request is to be charged at that arrived then."""
        at_ms = (at - _EPOCH) // timedelta(milliseconds=1)
        return tier_prices(
            self._holding(model, tier, adapter, at_ms),
            tier=tier,
            multiplier_permille=self._multiplier(tier, at),
            service_class=service_class,
            adapter=adapter,
            at_ms=at_ms,
        )

    def _holding(self, model: str, tier: str, adapter: str, at_ms: int) -> list[PricePolicy]:
        """Return the corrections that cover the moment, of each place the newest, and the prices of
        the places that none covers."""
        holding: dict[tuple[str, str], PricePolicy] = {}
        for price in (*self._corrections[model], *self._prices[model]):
            if price.holds(tier, adapter, at_ms):
                holding.setdefault((price.tier, price.adapter), price)
        return list(holding.values())

    def _multiplier(self, tier: str, at: datetime) -> int:
        noted = self._multipliers[tier]
        if not noted:
            return WHOLE
        # What a tier had first it had before as well: nothing older is known.
        return noted[max(0, bisect_right(noted, at, key=lambda row: row[0]) - 1)][1]


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
    `operator_scope`. More is owed; less pays what is owed and is credit then."""
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
                        entries=_entries(due, held),
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


def _entries(due: Sequence[Adjustment], held: Balances) -> list[Entry]:
    entries = [
        Entry(account=AccountName.REVENUE, nanos=-each.nanos, model=each.model, day=each.day)
        for each in due
    ]
    total = sum(each.nanos for each in due)
    # Less than nothing cannot be owed: what is given back beyond that is credit.
    owed = max(total, -held[AccountName.RECEIVABLE])
    entries.append(Entry(account=AccountName.RECEIVABLE, nanos=owed))
    entries.append(Entry(account=AccountName.PREPAID_CREDIT, nanos=total - owed))
    return [entry for entry in entries if entry.nanos]


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
    records = UsageRecord.objects.filter(
        tenant_id=tenant_id, arrived_at__gte=begin, arrived_at__lt=end
    )
    return records.only(*_FIELDS).order_by("arrived_at").iterator(chunk_size=_CHUNK)


def _period(first: date, last: date) -> tuple[datetime, datetime]:
    begin = datetime.combine(first, time.min, UTC)
    return begin, datetime.combine(last, time.min, UTC) + timedelta(days=1)


_EPOCH: Final = datetime.fromtimestamp(0, UTC)
