"""Storage on invoices: what a month's came to is booked as owed when the month is invoiced. What
was booked of it before is left out, so that it is booked once, however often that is drafted."""

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Final

from django.db.models import Q

from tenants.billing.invoicing.uninvoiced import LATE_MONTHS
from tenants.billing.invoicing.usage_source import StorageLine, usage_source
from tenants.billing.ledger.posting import Entry, Posting, post
from tenants.billing.ledger.refusals import STORAGE_REFERENCES
from tenants.billing.models import AccountName, LedgerEntry, TransactionKind
from tenants.billing.periods import last_day, months_before, parse_month, start_of
from tenants.billing.pricing.storage import GIB, hours_of_month

_Month = tuple[uuid.UUID, date]


def book_storage(tenant_ids: Sequence[uuid.UUID], period: date) -> None:
    """Book what these tenants have kept up to the end of a month, and nothing has charged yet. Runs
    in an `operator_scope`, with the tenants' ledgers to be locked by nobody else before."""
    by_month: defaultdict[date, list[Posting]] = defaultdict(list)
    booked, counts = _booked(tenant_ids)
    first = months_before(period, LATE_MONTHS)
    for line in usage_source().storage(tenant_ids, first, last_day(period)):
        key = (line.tenant_id, line.period)
        left = line.cost_nanos - booked[key]
        if left > 0:
            by_month[line.period].append(_posting(line, left, counts[key] + 1))
    for month in sorted(by_month):
        post(by_month[month])


def storage_problems() -> Iterator[str]:
    """Find, for fsck, months whose storage was charged for more than is on record."""
    tenant_ids = list(
        LedgerEntry.objects.filter(_STORAGE).order_by().values_list("tenant", flat=True).distinct()
    )
    booked, _ = _booked(tenant_ids)
    if not booked:
        return
    months = [month for _, month in booked]
    lines = usage_source().storage(tenant_ids, min(months), last_day(max(months)))
    kept = {(line.tenant_id, line.period): line.cost_nanos for line in lines}
    for (tenant_id, month), nanos in sorted(booked.items()):
        cost = kept.get((tenant_id, month), 0)
        if nanos > cost:
            yield (
                f"Tenant {tenant_id}: storage of {month:%Y-%m} is charged with {nanos} "
                f"nano-dollars, and what was kept costs {cost}."
            )


_STORAGE: Final = Q(transaction__kind=TransactionKind.STORAGE, account=AccountName.RECEIVABLE)


def _booked(tenant_ids: Sequence[uuid.UUID]) -> tuple[Counter[_Month], Counter[_Month]]:
    """Return what was booked, in nano-dollars, and how often, by tenant and month."""
    nanos: Counter[_Month] = Counter()
    counts: Counter[_Month] = Counter()
    rows = LedgerEntry.objects.filter(_STORAGE, tenant__in=tenant_ids)
    for tenant_id, reference, amount in rows.values_list(
        "tenant_id", "transaction__reference", "nanos"
    ):
        month = parse_month(reference.split(":")[1])
        nanos[tenant_id, month] += amount
        counts[tenant_id, month] += 1
    return nanos, counts


def _posting(line: StorageLine, nanos: int, number: int) -> Posting:
    average = line.byte_hours / hours_of_month(start_of(line.period)) / GIB
    return Posting(
        tenant_id=line.tenant_id,
        kind=TransactionKind.STORAGE,
        reference=f"{STORAGE_REFERENCES}{line.period:%Y-%m}:{number}",
        entries=[
            Entry(account=AccountName.RECEIVABLE, nanos=nanos),
            Entry(account=AccountName.ADJUSTMENTS, nanos=-nanos),
        ],
        memo=f"Storage of adapters in {line.period:%Y-%m}: {average:.3f} GiB over the month",
    )
