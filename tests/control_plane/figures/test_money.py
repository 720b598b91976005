"""Operators are told who earns and costs what, to the nano-dollar as it is dealt out from the
records themselves."""

import pytest
from control_plane.web.figures import short_number
from django.test import Client
from django.urls import reverse

from inference.usage.pools.dealt_days import deal_out_days
from tenants.isolation.scoping import operator_scope
from tests.support.figures.asking import RANGE, file_rows, nanos, page_of
from tests.support.figures.html_figures import Cell
from tests.support.figures.live_panels import forget_panels
from tests.support.figures.pool_costs import Bearer, dealt
from tests.support.figures.world import World

pytestmark = pytest.mark.django_db
IDLE = "(idle hours)"
_HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("table", "column"), [("pool", "pool"), ("model", "model"), ("tenant", "tenant_id")]
)
def test_revenue_cost_and_margin_are_right_to_the_nano_dollar(
    operator: Client, world: World, table: str, column: str
) -> None:
    bearers, idle = dealt(column)
    assert all(each.dealt > 0 for each in bearers.values()) and idle > 0
    check_file(operator, table, bearers, idle)
    check_page(operator, table, bearers, idle)
    if table == "tenant":
        # Once days are kept nothing is another.
        with operator_scope("test"):
            assert deal_out_days() >= 3
        forget_panels()
        check_file(operator, table, bearers, idle)
        check_page(operator, table, bearers, idle)


def test_whoever_it_is_dealt_out_to_all_costs_are_borne(world: World) -> None:
    by_pool, idle = dealt("pool")
    of_all = sum(each.cost for each in by_pool.values())
    for column in ("model", "tenant_id"):
        bearers, same = dealt(column)
        assert (sum(each.dealt for each in bearers.values()), same) == (of_all - idle, idle)


def check_file(operator: Client, table: str, bearers: dict[str, Bearer], idle: int) -> None:
    address = reverse("admin:dashboard-money-csv", args=[table])
    rows = {row[table]: row for row in file_rows(operator, address, RANGE)}
    if table != "pool":
        bearers = {**bearers, IDLE: Bearer(idle=idle)}
    assert rows.keys() == bearers.keys()
    for key, right in bearers.items():
        row = rows[key]
        told = {name: nanos(row[name]) for name in ("revenue", "cost", "idle", "margin")}
        assert told == {
            "revenue": right.revenue,
            "cost": right.cost,
            "idle": right.idle,
            "margin": right.revenue - right.cost,
        }
        assert int(row["tokens"]) == right.tokens
        assert row["gpu_hours"] == (f"{right.gpu_ms / _HOUR_MS:.2f}" if table == "pool" else "")
        per_1k = row["cost_per_1k_tokens"]
        assert (nanos(per_1k) if per_1k else None) == per_1k_of(right)


def check_page(operator: Client, table: str, bearers: dict[str, Bearer], idle: int) -> None:
    address = reverse("admin:dashboard-money-csv", args=[table])
    names = {row["name"]: row[table] for row in file_rows(operator, address, RANGE)}
    page = page_of(operator, reverse("admin:dashboard-money"), RANGE)
    shown = page.with_id(f"money-{table}-table")
    of_all = Bearer(
        tokens=sum(each.tokens for each in bearers.values()),
        revenue=sum(each.revenue for each in bearers.values()),
        dealt=sum(each.dealt for each in bearers.values()),
        idle=idle,
        gpu_ms=sum(each.gpu_ms for each in bearers.values()),
    )
    expected = {**bearers, IDLE: Bearer(idle=idle), "All": of_all}
    told = [names.get(row[0].text, row[0].text) for row in shown.rows]
    by_revenue = sorted(bearers, key=lambda key: (-bearers[key].revenue, -bearers[key].cost))
    assert told == [*by_revenue, *([] if table == "pool" else [IDLE]), "All"]
    for key, row in zip(told, shown.rows, strict=True):
        check_row(expected[key], row, with_hours=table == "pool")


def check_row(right: Bearer, row: list[Cell], *, with_hours: bool) -> None:
    assert row[1].text == short_number(right.tokens)
    if with_hours:
        assert row.pop(2).text == f"{right.gpu_ms / _HOUR_MS:,.1f}"
    revenue, cost, idle, margin, share, per_1k = row[2:]
    told = [nanos(each.title) for each in (revenue, cost, idle, margin)]
    assert told == [right.revenue, right.cost, right.idle, right.revenue - right.cost]
    percent = 100 * (right.revenue - right.cost) / right.revenue if right.revenue else None
    assert share.text == ("–" if percent is None else f"{percent:.0f} %")
    assert (nanos(per_1k.title) if right.tokens else None) == per_1k_of(right)


def per_1k_of(right: Bearer) -> int | None:
    """What 1,000 tokens cost, a part of a nano-dollar left out."""
    return right.cost * 1000 // right.tokens if right.tokens else None
