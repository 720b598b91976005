"""The overview's charts: what each of the last days cost, and how soon its answers began."""

from datetime import date, timedelta
from typing import Final

from control_plane.dashboard.charts.chart import Chart, Kind, Series, State, Unit
from control_plane.dashboard.charts.hues import hues
from inference.histograms import Histogram
from inference.usage.overview import Days
from inference.usage.reports import QUANTILES, Dimension, UsageQuery, aggregate, quantiles

DAYS: Final = 30
_NOTHING: Final = f"Nothing was used in the last {DAYS} days."


def charts(today: date) -> list[Chart]:
    """Return the charts of the open scope's tenant, one reading for all."""
    days = Days(today - timedelta(days=DAYS - 1), today)
    query = UsageQuery(first=days.first, last=days.last, group_by=(Dimension.DAY,))
    found = {row["day"]: row for row in aggregate(query, with_latencies=True)}
    moments = [days.first + timedelta(days=place) for place in range(DAYS)] if found else []
    spent = [int(found[day]["cost_nanos"]) if day in found else 0 for day in moments]
    waited = [
        quantiles(found[day]["ttft_histogram"] if day in found else Histogram()) for day in moments
    ]
    chosen = hues(QUANTILES)
    return [
        Chart(
            id="spend-chart",
            title="Spend by day",
            unit=Unit.DOLLARS,
            kind=Kind.STACKED,
            moments=moments,
            series=[Series(name="spend", hue=1, values=spent)],
            state=State.READY if found else State.EMPTY,
            reason=_NOTHING,
        ),
        Chart(
            id="ttft-chart",
            title="Time to first token by day",
            unit=Unit.MILLISECONDS,
            is_logarithmic=True,
            moments=moments,
            series=[
                Series(name=name, hue=chosen[name], values=[each[name] for each in waited])
                for name in QUANTILES
            ],
            state=State.READY if found else State.EMPTY,
            reason=_NOTHING,
        ),
    ]
