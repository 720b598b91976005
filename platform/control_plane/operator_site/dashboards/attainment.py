"""Attainment: how each tier's promises are kept of what the service owed, what is left of the error
budget, and how fast it burns."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from django import forms
from django.db import models
from django.db.models import Sum
from django.utils import timezone

from control_plane.live.panels import Panel
from control_plane.operator_site.dashboards.ranged import (
    RangedDashboard,
    Selection,
    Table,
    ranged_panel,
)
from control_plane.operator_site.dashboards.words import UNKNOWN
from inference.models import DailyPoolUsage, PoolUsage
from inference.usage.pools.rebuild import HOUR, are_complete
from inference.usage.rollups import OWED
from tenants.billing.invoicing.sla_credits import LATENCY_PROMISE_PERCENT
from tenants.isolation.scoping import operator_scope
from tenants.models import Tier

# What may miss a latency target, of all; of uptime each tier says.
_BUDGET: Final = float(100 - LATENCY_PROMISE_PERCENT) / 100
_SMALLEST_BUDGET: Final = 1e-5
# As the alert rule has it: a month's budget is gone in two days.
FAST_BURN: Final = 14.4


class Counted(NamedTuple):
    """Requests within their target, all that were measured, and the share that may miss it."""

    kept: int
    total: int
    budget: float = _BUDGET

    @property
    def missed(self) -> int:
        return self.total - self.kept

    @property
    def burn_rate(self) -> float | None:
        """Return how many times as many missed their target as may; None of nothing. Where none
        may, one that did is more than enough."""
        if not self.total:
            return None
        return self.missed / self.total / max(self.budget, _SMALLEST_BUDGET)


NOTHING: Final = Counted(kept=0, total=0)
# By tier and promise.
Counts = Mapping[tuple[str, str], Counted]
PROMISES: Final = {
    "ttft": "time to first token",
    "inter_token": "inter-token latency",
    "uptime": "uptime",
}


@dataclass(frozen=True, kw_only=True)
class Burning:
    """A tier's promise, of which too much is missed; `is_fast` of the last hour."""

    tier: str
    promise: str
    burn_rate: float
    is_fast: bool


@dataclass(frozen=True, kw_only=True)
class AttainmentRow:
    """A tier's promise in words; `used_percent` of its error budget, at most 100."""

    tier: str
    promise: str
    target: str
    measured: str
    within: str
    is_kept: bool
    missed: str
    used: str
    used_percent: int
    burn_1h: str
    burn_24h: str
    is_burning: bool


@dataclass(frozen=True, kw_only=True)
class AttainmentTable:
    """`is_partial` where earlier usage is not summed up by pool."""

    rows: tuple[AttainmentRow, ...]
    is_partial: bool


def attainment_table(selection: Selection) -> AttainmentTable:
    """Return the table that the page shows."""
    with operator_scope("dashboard attainment"):
        now = timezone.now()
        of_hour, of_day = (_since(now, hours, **selection.filters) for hours in (1, 24))
        return AttainmentTable(
            rows=tuple(
                _row(tier, promise, counted, of_hour, of_day)
                for tier, promise, counted in _kept(selection)
            ),
            is_partial=not are_complete(selection.begin),
        )


def attainment_file(selection: Selection) -> Table:
    """Return all rows."""
    return [
        ["tier", "promise", "target_ms", "measured", "within_target"],
        *(
            [tier.name, promise, _target_ms(tier, promise) or "", counted.total, counted.kept]
            for tier, promise, counted in _kept(selection)
        ),
    ]


def burning(now: datetime) -> Iterator[Burning]:
    """Yield the promises whose error budget burns too fast, in the open operator's scope."""
    of_hour, of_day = _since(now, 1), _since(now, 24)
    for key in sorted(of_day):
        fast = of_hour.get(key, NOTHING).burn_rate or 0.0
        slow = of_day[key].burn_rate or 0.0
        if fast > FAST_BURN or slow > 1:
            is_fast = fast > FAST_BURN
            yield Burning(
                tier=key[0],
                promise=PROMISES[key[1]],
                burn_rate=fast if is_fast else slow,
                is_fast=is_fast,
            )


def _kept(selection: Selection) -> Iterator[tuple[Tier, str, Counted]]:
    days = DailyPoolUsage.objects.filter(day__gte=selection.first, day__lte=selection.last)
    counts = _counts(days.filter(**selection.filters))
    for tier in Tier.objects.filter(name__in={name for name, _ in counts}):
        for promise in PROMISES:
            counted = counts.get((tier.name, promise), NOTHING)
            if counted.total:
                yield tier, promise, counted


def _since(now: datetime, hours: int, **filters: Any) -> Counts:
    """Count the last so many full hours, and the one that runs."""
    begin = now.replace(minute=0, second=0, microsecond=0) - hours * HOUR
    return _counts(PoolUsage.objects.filter(hour__gte=begin, **filters))


def _counts(rows: "models.QuerySet[Any, Any]") -> Counts:
    """Count by tier and promise what was owed; of before that was judged nothing is known."""
    found = (
        rows.filter(requests_owed__isnull=False)
        .order_by()
        .values("tier")
        .annotate(**{name: Sum(name) for name in OWED})
    )
    uptime = dict(Tier.objects.values_list("name", "uptime_percent"))
    counts: dict[tuple[str, str], Counted] = {}
    for row in found:
        tier, owed = row["tier"], {name: int(row[name]) for name in OWED}
        counts[tier, "ttft"] = Counted(owed["ttft_owed_in_time"], owed["ttft_owed"])
        counts[tier, "inter_token"] = Counted(owed["itl_owed_in_time"], owed["itl_owed"])
        if tier in uptime:
            served = owed["requests_owed"] - owed["failed_owed"]
            budget = float(100 - uptime[tier]) / 100
            counts[tier, "uptime"] = Counted(served, owed["requests_owed"], budget)
    return counts


def _row(
    tier: Tier, promise: str, counted: Counted, of_hour: Counts, of_day: Counts
) -> AttainmentRow:
    key = (tier.name, promise)
    used = counted.burn_rate or 0.0
    fast = of_hour.get(key, NOTHING).burn_rate
    slow = of_day.get(key, NOTHING).burn_rate
    return AttainmentRow(
        tier=tier.name,
        promise=PROMISES[promise],
        target=_target(tier, promise),
        measured=f"{counted.total:,}",
        within=_percent_down(counted),
        is_kept=used <= 1,
        missed=f"{counted.missed:,}",
        used=f"{used * 100:,.0f} %",
        used_percent=min(100, round(used * 100)),
        burn_1h=_times(fast),
        burn_24h=_times(slow),
        is_burning=(fast or 0.0) > FAST_BURN or (slow or 0.0) > 1,
    )


def _target(tier: Tier, promise: str) -> str:
    target_ms = _target_ms(tier, promise)
    if target_ms is None:
        return f"{tier.uptime_percent.normalize():f} % served"
    return f"{LATENCY_PROMISE_PERCENT} % within {target_ms:,} ms"


def _target_ms(tier: Tier, promise: str) -> int | None:
    """Return the target of a latency, None of uptime."""
    targets = {"ttft": tier.ttft_target_ms, "inter_token": tier.inter_token_target_ms}
    return targets.get(promise)


def _percent_down(counted: Counted) -> str:
    """Return hundredths of a percent, rounded down: 98.996 % does not read as 99 %."""
    hundredths = counted.kept * 10_000 // counted.total
    return f"{hundredths // 100}.{hundredths % 100:02d} %"


def _times(burn_rate: float | None) -> str:
    return UNKNOWN if burn_rate is None else f"{burn_rate:,.1f}x"


def _filters() -> Mapping[str, forms.Field]:
    return {
        "pool": forms.CharField(label="Pool", max_length=100, required=False),
        "model": forms.CharField(label="Model", max_length=200, required=False),
    }


def _panels(selection: Selection) -> tuple[Panel, ...]:
    return (
        ranged_panel(
            selection,
            name="attainment-tiers",
            title="Targets by tier",
            template="admin/dashboards/attainment.html",
            read=attainment_table,
        ),
    )


ATTAINMENT: Final = RangedDashboard(
    name="attainment",
    title="Attainment",
    icon="target",
    permission="inference.view_usagerecord",
    build=_panels,
    filters=_filters,
    tables={"tier": attainment_file},
    legend=(
        "Requests whose tier's promises the service owed, as on invoices (docs/sla.md), of all "
        "tenants together: there each tenant's share of each hour counts. A request counts by the "
        "target that its tier had when it was recorded. The error budget is what may miss it, of "
        f"the days above: {_BUDGET:.0%} ".replace("%", " %")
        + "of a latency, of uptime what the tier leaves. The burn rate says how many times as many "
        "missed it, in the last full hour and this one, and in the last 24 and this one, whatever "
        f"the days: above 1 the promise is broken if it goes on, {FAST_BURN} uses a month's budget "
        "up in two days. Read anew once a minute."
    ),
)
