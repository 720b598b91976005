"""Days whose GPU costs are dealt out to tenants once and kept: an hour of a pool may have a
thousand tenants, and a page shows months.

A day is kept with the digest of what it was dealt out from: the hourly sums of its pools and what
each hour cost. Usage that is recorded late changes those, so that the day is dealt out anew by
whoever asks, until `deal_out_days` has kept it again. Today is never kept.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from django.db.models import Min, Sum
from django.utils import timezone

from inference.models.rollup import DealtCost, DealtDay, PoolUsage
from inference.usage.pools.dealing import Costs, Span, deal_out
from tenants.billing.pricing.gpu_costs import hour_costs
from tenants.isolation.scoping import operator_scope

_DAY: Final = timedelta(days=1)


def dealt_to_tenants(
    begin: datetime, end: datetime, costs: Costs
) -> dict[str, tuple[int, int, int]]:
    """Return tokens, revenue and dealt out nano-dollars of each tenant by id, in the hours from
    `begin` to before `end`. Runs in an `operator_scope`."""
    days = _kept_days(begin, end, costs)
    found = deal_out("tenant_id", list(_spans_without(days, begin, end)), costs)
    kept = (
        DealtCost.objects.filter(day__in=days)
        .values_list("tenant_id")
        .annotate(Sum("tokens"), Sum("revenue_nanos"), Sum("dealt_nanos"))
    )
    for tenant, *sums in kept:
        before = found.get(str(tenant), (0, 0, 0))
        tokens, revenue, nanos = (now + int(more) for now, more in zip(before, sums, strict=True))
        found[str(tenant)] = tokens, revenue, nanos
    return found


def deal_out_days(most: int = 100, now: datetime | None = None) -> int:
    """Keep the days before today that are not kept, or no longer true, the newest first, at most
    so many. Return how many. Opens an `operator_scope` for each."""
    with operator_scope("deal out costs"):
        days = _stale_days(now or timezone.now())[:most]
    for day in days:
        with operator_scope("deal out costs"):
            _keep(day)
    return len(days)


def dealt_cost_problems() -> Iterator[str]:
    """Find kept days of which a tenant has something else than dealing them out again gives. Runs
    in an `operator_scope`."""
    kept = list(DealtDay.objects.order_by("day").values_list("day", flat=True))
    if not kept:
        return
    begin, end = _midnight(kept[0]), _midnight(kept[-1]) + _DAY
    costs = hour_costs(begin, end)
    for day in _kept_days(begin, end, costs):
        rows = DealtCost.objects.filter(day=day).values_list(
            "tenant_id", "tokens", "revenue_nanos", "dealt_nanos"
        )
        found = {str(tenant): tuple(sums) for tenant, *sums in rows}
        expected = deal_out("tenant_id", [(_midnight(day), _midnight(day) + _DAY)], costs)
        for tenant in sorted(found.keys() | expected.keys()):
            if found.get(tenant) != expected.get(tenant):
                yield (
                    f"Tenant {tenant}, {day}: {found.get(tenant)} tokens, revenue and cost "
                    f"(nano-dollars) are kept, the day's hours come to {expected.get(tenant)}: run "
                    "manage.py rebuild_usage_sums."
                )


def _kept_days(begin: datetime, end: datetime, costs: Costs) -> list[date]:
    """Return the whole days from `begin` to before `end` that are kept and still true."""
    days = DealtDay.objects.filter(day__gte=begin.date(), day__lt=end.date())
    kept = dict(days.values_list("day", "source"))
    sources = _sources(begin, end, costs) if kept else {}
    return [
        day
        for day, source in sorted(kept.items())
        if _midnight(day) >= begin and sources.get(day, "") == source
    ]


def _spans_without(days: list[date], begin: datetime, end: datetime) -> Iterator[Span]:
    for day in days:
        if begin < _midnight(day):
            yield begin, _midnight(day)
        begin = _midnight(day) + _DAY
    if begin < end:
        yield begin, end


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)


def _stale_days(now: datetime) -> list[date]:
    """Return the days before today that are not kept, or no longer true, the newest first."""
    today = now.astimezone(UTC).date()
    oldest: datetime | None = PoolUsage.objects.aggregate(oldest=Min("hour"))["oldest"]
    first = oldest.astimezone(UTC).date() if oldest else today
    begin, end = _midnight(first), _midnight(today)
    kept = set(_kept_days(begin, end, hour_costs(begin, end)))
    days = [today - count * _DAY for count in range(1, (today - first).days + 1)]
    return [day for day in days if day not in kept]


def _keep(day: date) -> None:
    begin, end = _midnight(day), _midnight(day) + _DAY
    # Before the rows are read: what is recorded in between leaves them out of date, and seen to be.
    costs = hour_costs(begin, end)
    source = _sources(begin, end, costs).get(day, "")
    rows = deal_out("tenant_id", [(begin, end)], costs)
    DealtCost.objects.filter(day=day).delete()
    DealtCost.objects.bulk_create(
        DealtCost(
            day=day, tenant_id=tenant, tokens=tokens, revenue_nanos=revenue, dealt_nanos=nanos
        )
        for tenant, (tokens, revenue, nanos) in rows.items()
    )
    DealtDay.objects.update_or_create(day=day, defaults={"source": source})


def _sources(begin: datetime, end: datetime, costs: Costs) -> dict[date, str]:
    """Return by day the digest of what its costs are dealt out from."""
    told: defaultdict[date, list[tuple[str, ...]]] = defaultdict(list)
    used = PoolUsage.objects.filter(hour__gte=begin, hour__lt=end).values_list("hour", "pool")
    for hour, *sums in used.annotate(
        Sum("prompt_tokens"), Sum("completion_tokens"), Sum("cost_nanos")
    ):
        told[hour.astimezone(UTC).date()].append(("used", str(hour), *map(str, sums)))
    for (pool, hour), (_, nanos) in costs.items():
        told[hour.astimezone(UTC).date()].append(("cost", str(hour), pool, str(nanos)))
    return {
        day: hashlib.sha256(repr(sorted(each)).encode()).hexdigest() for day, each in told.items()
    }
