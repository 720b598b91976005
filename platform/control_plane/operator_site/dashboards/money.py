"""Money: what pools, models and tenants earn, what they cost, and what idle hours cost."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from control_plane.live.panels import Panel
from control_plane.operator_site.dashboards.ranged import (
    NoTable,
    RangedDashboard,
    Selection,
    Table,
    ranged_panel,
)
from control_plane.operator_site.dashboards.tenant_names import tenant_names
from control_plane.operator_site.dashboards.words import UNKNOWN, percent
from control_plane.web.figures import short_dollars, short_number
from inference.usage.pools.margins import By, Margin, Margins, SumsMissing, margins
from tenants.isolation.scoping import operator_scope
from tenants.money import decimal_dollars, dollars

MOST_ROWS: Final = 50
_HOUR_MS: Final = 3_600_000
_PERMISSION: Final = "billing.view_poolcost"
_IDLE: Final = "(idle hours)"


@dataclass(frozen=True, kw_only=True)
class Amount:
    """Money as it is shown, and exactly."""

    short: str
    exact: str
    is_minus: bool = False


@dataclass(frozen=True, kw_only=True)
class MoneyRow:
    """What a pool, a model or a tenant earned and cost; `hours` of GPUs and `idle` are of pools."""

    name: str
    tokens: str
    hours: str
    revenue: Amount
    cost: Amount
    idle: Amount
    margin: Amount
    share: str
    per_1k: Amount


@dataclass(frozen=True, kw_only=True)
class MoneyTable:
    """Those with most revenue; `left_out` is how many more there are, `problem` why there is no
    table. `of_all` has what idle hours cost too; `without_cost` names pools that were used though
    nobody knows what they cost."""

    by: str
    rows: tuple[MoneyRow, ...] = ()
    of_all: MoneyRow | None = None
    left_out: int = 0
    without_cost: str = ""
    problem: str = ""


def money_table(by: By, selection: Selection) -> MoneyTable:
    """Return the table that the page shows."""
    with operator_scope("dashboard money"):
        try:
            found = margins(selection.begin, selection.end, by)
        except SumsMissing as error:
            return MoneyTable(by=by.value, problem=str(error))
        names = _names(found, by)
    rows = sorted(found.rows, key=lambda row: (-row.revenue_nanos, -row.cost_nanos, row.of))
    shown_rows = rows[:MOST_ROWS]
    shown = [_row(names.get(row.of, row.of), row) for row in shown_rows]
    if found.idle_nanos and by is not By.POOL:
        shown.append(_row(_IDLE, _idle(found)))
    return MoneyTable(
        by=by.value,
        rows=tuple(shown),
        of_all=_row("All", _sum(found)) if shown else None,
        left_out=max(0, len(rows) - MOST_ROWS),
        without_cost=", ".join(
            row.of for row in shown_rows if by is By.POOL and row.tokens and not row.gpu_ms
        ),
    )


def money_file(by: By, selection: Selection) -> Table:
    """Return all rows, exact to the nano-dollar. Raises `NoTable`."""
    try:
        found = margins(selection.begin, selection.end, by)
    except SumsMissing as error:
        raise NoTable(str(error)) from None
    names = _names(found, by)
    rows = [*found.rows]
    if found.idle_nanos and by is not By.POOL:
        rows.append(_idle(found))
    return [
        [by.value, "name", "tokens", "gpu_hours", "revenue", "cost", "idle", "margin",
         "cost_per_1k_tokens"],
        *(
            [
                row.of,
                names.get(row.of, row.of),
                row.tokens,
                f"{row.gpu_ms / _HOUR_MS:.2f}" if by is By.POOL else "",
                *map(decimal_dollars, (row.revenue_nanos, row.cost_nanos, row.idle_nanos,
                                       row.margin_nanos)),
                "" if row.cost_nanos_per_1k_tokens is None
                else decimal_dollars(row.cost_nanos_per_1k_tokens),
            ]
            for row in rows
        ),
    ]  # fmt: skip


def _names(found: Margins, by: By) -> Mapping[str, str]:
    if by is not By.TENANT:
        return {}
    return tenant_names(row.of for row in found.rows)


def _idle(found: Margins) -> Margin:
    return Margin(of=_IDLE, tokens=0, revenue_nanos=0, dealt_nanos=0, idle_nanos=found.idle_nanos)


def _sum(found: Margins) -> Margin:
    return Margin(
        of="",
        tokens=sum(row.tokens for row in found.rows),
        revenue_nanos=sum(row.revenue_nanos for row in found.rows),
        dealt_nanos=sum(row.dealt_nanos for row in found.rows),
        idle_nanos=found.idle_nanos,
        gpu_ms=sum(row.gpu_ms for row in found.rows),
    )


def _row(name: str, margin: Margin) -> MoneyRow:
    revenue = margin.revenue_nanos
    return MoneyRow(
        name=name,
        tokens=short_number(margin.tokens),
        hours=f"{margin.gpu_ms / _HOUR_MS:,.1f}",
        revenue=_amount(revenue),
        cost=_amount(margin.cost_nanos),
        idle=_amount(margin.idle_nanos),
        margin=_amount(margin.margin_nanos),
        share=percent(margin.margin_nanos / revenue if revenue else None),
        per_1k=_amount(margin.cost_nanos_per_1k_tokens),
    )


def _amount(nanos: int | None) -> Amount:
    if nanos is None:
        return Amount(short=UNKNOWN, exact="no tokens")
    return Amount(short=short_dollars(nanos), exact=dollars(nanos), is_minus=nanos < 0)


def _panels(selection: Selection) -> tuple[Panel, ...]:
    return tuple(
        ranged_panel(
            selection,
            name=f"money-{by}",
            title=f"By {by}",
            template="admin/dashboards/money.html",
            read=partial(money_table, by),
        )
        for by in By
    )


MONEY: Final = RangedDashboard(
    name="money",
    title="Money",
    icon="payments",
    permission=_PERMISSION,
    build=_panels,
    tables={str(by): partial(money_file, by) for by in By},
    legend=(
        "Revenue is what usage cost its tenants. What the GPUs of a pool cost in an hour is dealt "
        "out to who used it then, a token of a prompt as one unit and one of an output as two; "
        "hours in which a pool did nothing are idle and nobody's. A pool without a cost in "
        "Billing > GPU costs costs nothing here. Read anew once a minute."
    ),
)
