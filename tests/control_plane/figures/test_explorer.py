"""The usage explorer splits, compares, adds up and draws what PostgreSQL sums up from the records
themselves."""

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import accumulate
from random import Random
from typing import Any, Final

import pytest
from control_plane.dashboard.pages.usage.measures import MEASURES
from django.test import Client
from django.urls import reverse
from redis import Redis

from gpu_workers.protocol import keys
from inference.usage.collector import UsageCollector
from tenants.isolation.scoping import operator_scope
from tenants.money import decimal_dollars, dollars
from tests.support.figures.asking import (
    RANGE,
    compared,
    days,
    file_rows,
    in_one_hour,
    nanos,
    page_of,
)
from tests.support.figures.direct_sums import asked, summed
from tests.support.figures.html_figures import Table
from tests.support.figures.world import POOLS, World, serve

pytestmark = pytest.mark.django_db
DAY: Final = timedelta(days=1)
DRAWN: Final = 7
LISTED: Final = 50


@pytest.mark.parametrize("measure", list(MEASURES))
def test_it_splits_the_same_sums(tenant: Client, world: World, measure: str) -> None:
    query = {**RANGE, "measure": measure, "by": "api_key", "then_by": "model"}
    page = page_of(tenant, f"/t/{world.acme.id}/usage", query)
    expected = summed(*days(RANGE), "api_key_id", "model", tenant_id=world.acme.id)
    shown = MEASURES[measure]
    amounts = [sum(row[name] for name in shown.counters) for row in expected.values()]
    is_money = shown.counters == ("cost_nanos",)
    exact: Callable[[int], str] = dollars if is_money else lambda amount: f"{amount:,}"
    unit = "" if is_money else f" {shown.unit}"
    total = sum(amounts)
    assert page.singles[shown.word].title == exact(total) + unit
    listed = page.table("API key / Model", shown.word)
    assert Counter((row[1].text, row[2].text) for row in listed.rows) == Counter(
        (exact(each), f"{float(Fraction(100 * each, total)):.1f} %") for each in amounts
    )
    assert Counter(tuple(cell.text for cell in row[3:6]) for row in listed.rows) == Counter(
        tuple(f"{row[name]:,}" for name in ("requests", "prompt_tokens", "completion_tokens"))
        for row in expected.values()
    )
    in_file = file_rows(tenant, reverse("dashboard:usage-csv", args=[world.acme.id]), query)
    told = {(row["api_key_id"], row["model"]): row for row in in_file}
    assert len(told) == len(expected)
    for (key, model), right in expected.items():
        row = told[str(key), model]
        assert row["cost_dollars"] == decimal_dollars(right["cost_nanos"], digits=9)
        for name in ("requests", "prompt_tokens", "completion_tokens"):
            assert int(row[name]) == right[name]


@pytest.mark.parametrize("is_cumulated", [False, True])
@pytest.mark.parametrize(("measure", "counters"), [
    ("spend", ("cost_nanos",)), ("tokens", ("prompt_tokens", "completion_tokens")),
])  # fmt: skip
def test_it_compares_with_as_many_days_before(
    tenant: Client, world: World, measure: str, counters: tuple[str, ...], is_cumulated: bool
) -> None:
    query = {"days": "14", "measure": measure, "by": "model", "compared": "on"}
    if is_cumulated:
        query["cumulated"] = "on"
    hour, page = in_one_hour(lambda: page_of(tenant, f"/t/{world.acme.id}/usage", query))
    moments = [hour.date() - each * DAY for each in range(13, -1, -1)]
    now, before = (
        {
            key: sum(row[name] for name in counters)
            for key, row in summed(first, last, "model", "day", tenant_id=world.acme.id).items()
        }
        for first, last in (
            (moments[0], moments[-1]),
            (moments[0] - 14 * DAY, moments[-1] - 14 * DAY),
        )
    )
    word = MEASURES[measure].word
    total, total_before = sum(now.values()), sum(before.values())
    assert total > 0 and total_before > 0
    assert page.singles[word].period.text == f"14 days, UTC, {compared(total, total_before)}"
    of_model, of_model_before = (by_first(each) for each in (now, before))
    listed = page.table("Model", word)
    assert [row[0].text for row in listed.rows] == sorted(
        of_model, key=lambda model: -of_model[model]
    )
    assert {row[0].text: row[-1].text for row in listed.rows} == {
        model: changed(amount, of_model_before[model]) for model, amount in of_model.items()
    }
    drawn = page.with_id("usage-chart")
    assert [row[0].text for row in drawn.rows] == [f"{day.day} {day:%b %Y}" for day in moments]
    series = columns(drawn, measure)
    right = {model: [now.get((model, day), 0) for day in moments] for model in of_model}
    days_before = [day - 14 * DAY for day in moments]
    right["the period before"] = [
        sum(before.get((model, day), 0) for model in POOLS) for day in days_before
    ]
    if is_cumulated:
        right = {name: list(accumulate(values)) for name, values in right.items()}
    assert series == right


def by_first(amounts: dict[tuple[Any, ...], int]) -> Counter[str]:
    sums: Counter[str] = Counter()
    for (name, *_), amount in amounts.items():
        sums[name] += amount
    return sums


def changed(now: int, before: int) -> str:
    """How a row says what it is beside the period before."""
    if not before:
        return "new" if now else "as before"
    percent = round(Fraction(100 * (now - before), before))
    return f"{percent:+d} %" if percent else "as before"


def columns(drawn: Table, measure: str) -> dict[str, list[int]]:
    """The series of a chart by name."""
    amount = nanos if measure == "spend" else lambda text: int(text.split()[0].replace(",", ""))
    return {
        name: [amount(row[place].text) for row in drawn.rows]
        for place, name in enumerate(drawn.head[1:], start=1)
    }


def test_it_draws_the_largest_and_the_rest_as_other(tenant: Client, world: World) -> None:
    query = {**RANGE, "measure": "spend", "by": "api_key", "then_by": "model"}
    page = page_of(tenant, f"/t/{world.acme.id}/usage", query)
    first, last = days(RANGE)
    drawn_until = min(last, datetime.now(UTC).date())  # what has not begun is not drawn
    moments = [first + each * DAY for each in range((drawn_until - first).days + 1)]
    names = {key.id: key.name for key in world.keys}
    costs: dict[str, Counter[Any]] = {}
    for (key, model, day), row in summed(
        first, last, "api_key_id", "model", "day", tenant_id=world.acme.id
    ).items():
        costs.setdefault(f"{names[key]} / {model}", Counter())[day] = row["cost_nanos"]
    largest = sorted(costs, key=lambda name: -costs[name].total())
    assert len(largest) > DRAWN
    right = {name: [costs[name][day] for day in moments] for name in largest[:DRAWN]}
    right["other"] = [sum(costs[name][day] for name in largest[DRAWN:]) for day in moments]
    assert columns(page.with_id("usage-chart"), "spend") == right
    assert [row[0].text for row in page.table("API key / Model", "Spend").rows] == largest


def test_it_lists_the_largest_and_tells_what_the_others_come_to(
    tenant: Client, world: World, dispatch_redis_url: str
) -> None:
    draw = Random(5)
    with operator_scope("test"), Redis.from_url(dispatch_redis_url) as redis:
        redis.sadd(keys.known_pools(), *POOLS.values())
        for number in range(LISTED + 10):
            serve(redis, draw, world.keys[0], datetime.now(UTC), adapter=f"adapter {number}")
        UsageCollector(redis).drain()
        redis.flushall()
    query = {**RANGE, "measure": "spend", "by": "adapter"}
    html = tenant.get(f"/t/{world.acme.id}/usage", query).content.decode()
    costs = [
        int(cost)
        for (cost,) in asked(
            "SELECT sum(cost_nanos) FROM inference_usagerecord WHERE tenant_id = %s"
            " GROUP BY adapter ORDER BY 1 DESC",
            [world.acme.id],
        )
    ]
    assert len(costs) == LISTED + 12
    page = page_of(tenant, f"/t/{world.acme.id}/usage", query)
    assert [nanos(row[1].text) for row in page.table("Adapter", "Spend").rows] == costs[:LISTED]
    rest = f"{sum(costs[LISTED:]) / 10**9:.9f}".rstrip("0")
    assert f"The 50 largest are listed; the others come to ${rest} together." in html


def test_by_hour_it_comes_to_the_same(tenant: Client, world: World) -> None:
    query = {"days": "3", "measure": "requests", "granularity": "hour"}
    hour, page = in_one_hour(lambda: page_of(tenant, f"/t/{world.acme.id}/usage", query))
    first = hour.date() - 2 * DAY
    expected = summed(first, hour.date(), "hour", tenant_id=world.acme.id)
    right = {
        f"{at.astimezone(UTC):%-d %b %Y, %H:%M} UTC": row["requests"]
        for (at,), row in expected.items()
    }
    drawn = page.with_id("usage-chart")
    [values] = columns(drawn, "requests").values()
    told = {row[0].text: each for row, each in zip(drawn.rows, values, strict=True)}
    assert len(told) == 48 + hour.hour + 1, "what has not begun is not drawn"
    assert {at: each for at, each in told.items() if each} == {
        at: each for at, each in right.items() if each
    }
