"""How the month stands beside the one before: what it cost and where it is heading, how soon
answers came and which promises were kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import floor
from typing import Final

from control_plane.live.panels import Panel
from inference.refusals.reports import RefusalQuery, total
from inference.usage.overview import Days, Figures, Kept, Standing, figures, standing
from tenants.billing.models import Promise
from tenants.models import Tenant

# Its sums are of thousands of rows, and grow by the second at most.
FRESH_SECONDS: Final = 5.0
_LATENCIES: Final = {
    "ttft": "Time to first token",
    "inter_token": "Between tokens",
    "queue": "In the queue",
}
_PROMISES: Final = {
    Promise.TTFT: "First token",
    Promise.INTER_TOKEN: "Between tokens",
    Promise.UPTIME: "Uptime",
}


@dataclass(frozen=True, kw_only=True)
class LatencyRow:
    """`cells` are quantiles by their names, now and before, in ms."""

    name: str
    cells: Mapping[str, tuple[float | None, float | None]]


@dataclass(frozen=True, kw_only=True)
class PromiseRow:
    """`percent` and `before` are how far it was kept in this month and in the one before."""

    name: str
    kept: Kept
    percent: str
    before: str


@dataclass(frozen=True, kw_only=True)
class Month:
    """The month so far, and the same days of the one `before`."""

    usage: Figures
    before: Figures
    standing: Standing
    refused: int
    refused_before: int

    @property
    def latencies(self) -> Sequence[LatencyRow]:
        now, before = self.usage.latencies_ms, self.before.latencies_ms
        return [
            LatencyRow(
                name=name,
                cells={label: (ms, before[latency][label]) for label, ms in now[latency].items()},
            )
            for latency, name in _LATENCIES.items()
        ]

    @property
    def promises(self) -> Sequence[PromiseRow]:
        """Return a row for each promise of each model and tier that was used."""
        before = {(each.tier, each.model, each.promise): each for each in self.before.attainment}
        return [
            PromiseRow(
                name=_PROMISES[kept.promise],
                kept=kept,
                percent=_percent(kept),
                before=_percent(before.get((kept.tier, kept.model, kept.promise))),
            )
            for kept in self.usage.attainment
        ]


def month_panel(tenant: Tenant) -> Panel:
    return Panel(
        name="month",
        title="This month",
        template="dashboard/overview/now.html",
        read=lambda: _read(tenant),
        fresh_seconds=FRESH_SECONDS,
        variant=str(tenant.id),
    )


def _read(tenant: Tenant) -> Month:
    moment = datetime.now(UTC)
    days = Days.of_month(moment.date())
    return Month(
        usage=figures(days, now=moment),
        before=figures(days.before, now=moment),
        standing=standing(tenant, moment.date()),
        refused=total(RefusalQuery(first=days.first, last=days.last)),
        refused_before=total(RefusalQuery(first=days.before.first, last=days.before.last)),
    )


def _percent(kept: Kept | None) -> str:
    """Format what was kept, rounded down: 99.996 is not all."""
    if kept is None:
        return "unknown"
    # In one division: 81.6 times 100 is less than 8,160.
    return f"{floor(kept.measured.kept * 10_000 / kept.measured.total) / 100:g} %"
