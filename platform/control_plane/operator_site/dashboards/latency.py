"""Latency over all tenants: percentiles by tier, pool, model and tenant, from sums."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from django import forms

from control_plane.live.panels import Panel
from control_plane.operator_site.dashboards.ranged import (
    NoTable,
    RangedDashboard,
    Selection,
    Table,
    ranged_panel,
)
from control_plane.operator_site.dashboards.tenant_names import tenant_names
from control_plane.operator_site.dashboards.words import UNKNOWN
from control_plane.web.figures import short_milliseconds, short_number
from inference.histograms import Histogram
from inference.usage.latencies import latency_by_tenant
from inference.usage.pools.rebuild import are_complete
from inference.usage.reports import QUANTILES, Dimension, UsageQuery, aggregate, quantiles
from tenants.isolation.scoping import operator_scope

MOST_ROWS: Final = 100
TENANTS_SHOWN: Final = 25
TENANTS_IN_FILE: Final = 1000
_GROUPS: Final = (Dimension.TIER, Dimension.POOL, Dimension.MODEL)
# As the file has them, and in the words of the page.
_LATENCIES: Final = {
    "ttft": "ttft_histogram",
    "inter_token": "itl_histogram",
    "queue": "queue_histogram",
    "end_to_end": "duration_histogram",
}
_WORDS: Final = ("First token", "Inter-token", "Queue", "End to end")
_LABELS: Final = tuple(f"{word}, {each}" for word in _WORDS for each in QUANTILES)
_COLUMNS: Final = (
    "requests",
    *(f"{name}_{each}_ms" for name in _LATENCIES for each in QUANTILES),
)
_NO_POOLS: Final = "The sums of tenants know no pools: leave out the pool to see them."


@dataclass(frozen=True, kw_only=True)
class LatencyRow:
    """`cells` are p50, p95 and p99 of each latency, one after another, each with its label."""

    name: str
    requests: str
    cells: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class LatencyTable:
    """Those with most requests; `is_partial` where earlier usage is not summed up by pool,
    `problem` why there is no table."""

    by: str
    rows: tuple[LatencyRow, ...] = ()
    left_out: int = 0
    in_file: str = "all"
    is_partial: bool = False
    problem: str = ""


def latency_table(by: Dimension, selection: Selection) -> LatencyTable:
    """Return the table that the page shows."""
    with operator_scope("dashboard latency"):
        found = _found(selection, by)
        is_partial = not are_complete(selection.begin)
    return LatencyTable(
        by=by.value,
        rows=tuple(_row(row[by.column], row) for row in found[:MOST_ROWS]),
        left_out=max(0, len(found) - MOST_ROWS),
        is_partial=is_partial,
    )


def latency_file(by: Dimension, selection: Selection) -> Table:
    """Return all rows, in milliseconds."""
    return [
        [by.value, *_COLUMNS],
        *([row[by.column], *_figures(row)] for row in _found(selection, by)),
    ]


def tenant_table(selection: Selection) -> LatencyTable:
    """Return the table of the tenants with most requests."""
    if "pool" in selection.filters:
        return LatencyTable(by="tenant", problem=_NO_POOLS)
    with operator_scope("dashboard latency"):
        found = latency_by_tenant(
            selection.begin, selection.end, most=TENANTS_SHOWN, **selection.filters
        )
        names = tenant_names(str(row["tenant_id"]) for row in found.rows)
    return LatencyTable(
        by="tenant",
        rows=tuple(
            _row(names.get(str(row["tenant_id"]), str(row["tenant_id"])), row) for row in found.rows
        ),
        left_out=found.tenants - len(found.rows),
        in_file=f"the first {TENANTS_IN_FILE:,}",
    )


def tenant_file(selection: Selection) -> Table:
    """Return the rows of many more. Raises `NoTable`."""
    if "pool" in selection.filters:
        raise NoTable(_NO_POOLS)
    found = latency_by_tenant(
        selection.begin, selection.end, most=TENANTS_IN_FILE, **selection.filters
    )
    names = tenant_names(str(row["tenant_id"]) for row in found.rows)
    return [
        ["tenant_id", "tenant", *_COLUMNS],
        *(
            [row["tenant_id"], names.get(str(row["tenant_id"]), ""), *_figures(row)]
            for row in found.rows
        ),
    ]


def _found(selection: Selection, by: Dimension) -> list[dict[str, Any]]:
    query = UsageQuery(
        first=selection.first, last=selection.last, group_by=(by,), **selection.filters
    )
    return list(aggregate(query, with_latencies=True).order_by("-requests", by.column))


def _row(name: str, row: Mapping[str, Any]) -> LatencyRow:
    return LatencyRow(
        name=name,
        requests=short_number(int(row["requests"])),
        cells=tuple(
            (label, UNKNOWN if ms is None else short_milliseconds(ms))
            for label, ms in zip(_LABELS, _ms(row), strict=True)
        ),
    )


def _figures(row: Mapping[str, Any]) -> list[object]:
    """Return the cells of `_COLUMNS`."""
    return [int(row["requests"]), *("" if ms is None else ms for ms in _ms(row))]


def _ms(row: Mapping[str, Any]) -> list[float | None]:
    histograms = (row[column] or Histogram() for column in _LATENCIES.values())
    return [ms for histogram in histograms for ms in quantiles(histogram).values()]


def _filters() -> Mapping[str, forms.Field]:
    lengths = {"tier": 40, "pool": 100, "model": 200}
    return {
        name: forms.CharField(label=name.capitalize(), max_length=length, required=False)
        for name, length in lengths.items()
    }


def _panels(selection: Selection) -> tuple[Panel, ...]:
    readers = {by.value: partial(latency_table, by) for by in _GROUPS} | {"tenant": tenant_table}
    return tuple(
        ranged_panel(
            selection,
            name=f"latency-{by}",
            title=f"By {by}",
            template="admin/dashboards/latency.html",
            read=read,
        )
        for by, read in readers.items()
    )


LATENCY: Final = RangedDashboard(
    name="latency",
    title="Latency",
    icon="timer",
    permission="inference.view_usagerecord",
    build=_panels,
    filters=_filters,
    tables={by.value: partial(latency_file, by) for by in _GROUPS} | {"tenant": tenant_file},
    legend=(
        "TTFT is of requests that had a first token, inter-token of the median of each of these, "
        "queue of those that a worker took, end to end of those that completed. Percentiles are "
        "at most 4.8 % off. Read anew once a minute."
    ),
)
