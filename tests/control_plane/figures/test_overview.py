"""A tenant's overview says of the month, and of the same days of the month before, what PostgreSQL
sums up from records, refusals and the ledger themselves; of now what stands in Redis."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from random import Random
from typing import Any, Final

import pytest
from django.test import Client
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Prices
from gpu_workers.protocol.policy import LimitName
from inference.admission.limits import LimitScope, ScopedLimit, packed
from inference.admission.reservations import ReservationRequest, Reservations
from inference.models import Pool, ServedModel
from inference.usage.collector import UsageCollector
from tenants.billing.ledger.credit import grant_promotion, top_up
from tenants.billing.ledger.waiting import LONGEST_WAIT, post_due
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Tenant
from tenants.models.tenant import BillingMode
from tenants.money import dollars
from tests.support.dispatch.virtual_pool import Ask, VirtualPool
from tests.support.figures.asking import (
    compared,
    in_one_hour,
    is_near,
    nanos,
    page_of,
    same_days_before,
    told_of,
)
from tests.support.figures.direct_sums import asked, summed
from tests.support.figures.world import BUDGET_NANOS, POOLS, World, serve

pytestmark = pytest.mark.django_db
DAY: Final = timedelta(days=1)
_RESERVED_NANOS: Final = 1_000_003
_LIMITS: Final = packed([ScopedLimit(LimitScope.TIER, LimitName.REQUESTS_PER_MINUTE, 1000)])


def test_the_month_stands_beside_the_same_days_before(tenant: Client, world: World) -> None:
    hour, page = in_one_hour(lambda: page_of(tenant, f"/t/{world.acme.id}/"))
    month, days_before = (hour.date().replace(day=1), hour.date()), same_days_before(hour.date())
    now, before = (told_in(world, *each) for each in (month, days_before))
    told = {name: page.singles[name] for name in now}
    assert {name: each.title for name, each in told.items()} == {
        "Spend": dollars(now["Spend"]),
        "Tokens": f"{now['Tokens']:,} tokens",
        **{name: f"{now[name]:,} requests" for name in ("Requests", "Errors", "Refused")},
    }
    assert {name: each.period.text for name, each in told.items()} == {
        name: f"so far, UTC, {compared(now[name], before[name])}" for name in now
    }
    [speed] = summed(*month, tenant_id=world.acme.id).values()
    [earlier] = summed(*days_before, tenant_id=world.acme.id).values()
    latencies = {
        "Time to first token": "ttft_ms",
        "Between": "inter_token_ms",
        "In the": "queue_ms",
    }
    shown = page.table("Latency")
    for name, latency in latencies.items():
        exact, exact_before = (each[latency] or [None] * 3 for each in (speed, earlier))
        for place, cell in enumerate(shown.row(name)[1:]):
            told_now, told_before = cell.text.split(" before ")
            assert is_near(told_now, exact[place]), (name, place)
            assert is_near(told_before, exact_before[place]), (name, place)


def told_in(world: World, first: date, last: date) -> dict[str, int]:
    """What the overview tells of these days."""
    [right] = summed(first, last, tenant_id=world.acme.id).values()
    of_day = told_of(world, "day", tenant_id=str(world.acme.id))
    return {
        "Spend": right["cost_nanos"],
        "Tokens": right["prompt_tokens"] + right["completion_tokens"],
        "Requests": right["requests"],
        "Errors": right["refused"] + right["expired"] + right["failed"],
        "Refused": sum(count for (day,), count in of_day.items() if str(first) <= day <= str(last)),
    }


def test_charts_have_each_of_the_last_thirty_days(tenant: Client, world: World) -> None:
    hour, page = in_one_hour(lambda: page_of(tenant, f"/t/{world.acme.id}/"))
    moments = [hour.date() - each * DAY for each in range(29, -1, -1)]
    right = summed(moments[0], moments[-1], "day", tenant_id=world.acme.id)
    spent, waited = page.with_id("spend-chart"), page.with_id("ttft-chart")
    days = [f"{day.day} {day:%b %Y}" for day in moments]
    assert [row[0].text for row in spent.rows] == [row[0].text for row in waited.rows] == days
    assert [nanos(row[1].text) for row in spent.rows] == [
        right[day,]["cost_nanos"] if (day,) in right else 0 for day in moments
    ]
    for day, row in zip(moments, waited.rows, strict=True):
        exact = right.get((day,), {"ttft_ms": None})["ttft_ms"] or [None] * 3
        for cell, each in zip(row[1:], exact, strict=True):
            assert is_near(cell.text.replace(",", ""), each), (day, cell.text, each)


def test_the_forecast_of_the_month_keeps_the_rule_that_is_told(
    tenant: Client, world: World
) -> None:
    hour, page = in_one_hour(lambda: page_of(tenant, f"/t/{world.acme.id}/"))
    today = hour.date()
    first = today.replace(day=1)
    by_day = summed(today - 40 * DAY, today, "day", tenant_id=world.acme.id)
    costs = Counter({day: row["cost_nanos"] for (day,), row in by_day.items()})
    mean = {
        day.weekday(): Fraction(sum(costs[day - week * 7 * DAY] for week in range(4)), 4)
        for day in (today - each * DAY for each in range(1, 8))
    }
    end = (first + 31 * DAY).replace(day=1)
    left = [today + each * DAY for each in range(1, (end - today).days)]
    spent = sum(cost for day, cost in costs.items() if first <= day < today)
    of_today = max(Fraction(costs[today]), mean[today.weekday()])
    forecast = round(spent + of_today + sum(mean[day.weekday()] for day in left))
    assert forecast > spent
    assert page.singles["Forecast"].title == dollars(forecast)
    assert page.singles["Budget"].title == dollars(BUDGET_NANOS)


def test_of_models_with_few_requests_nothing_is_told(tenant: Client, world: World) -> None:
    hour, page = in_one_hour(lambda: page_of(tenant, f"/t/{world.acme.id}/"))
    month = hour.date().replace(day=1)
    [(most,)] = asked(
        "SELECT max(requests) FROM (SELECT count(*) FILTER (WHERE owed) AS requests"
        " FROM inference_usagerecord WHERE tenant_id = %s AND arrived_at >= %s"
        " GROUP BY model) AS of_models",
        [world.acme.id, datetime.combine(month, datetime.min.time(), UTC)],
    )
    assert 0 < most < 100
    assert not [table for table in page.tables if table.head[:1] == ["Promise"]]


def test_credit_is_what_the_entries_of_the_ledger_leave(
    tenant: Client, world: World, settings: Any, dispatch_redis_url: str
) -> None:
    settings.PENSTOCK_DISPATCH_REDIS_URL = dispatch_redis_url
    draw = Random(3)
    with operator_scope("test"), Redis.from_url(dispatch_redis_url) as redis:
        Tenant.objects.filter(id=world.acme.id).update(billing_mode=BillingMode.PREPAID)
        grant_promotion(world.acme.id, 3_000_017, reference="a promotion")
        top_up(world.acme.id, 7_000_000_000, reference="a payment")
        redis.sadd(keys.known_pools(), *POOLS.values())
        for _ in range(10):
            serve(redis, draw, world.keys[0], datetime.now(UTC))
        UsageCollector(redis).drain()
        redis.flushall()
        asyncio.run(_reserve(dispatch_redis_url, world.keys[0], ["r1", "r2", "r3"]))
        overview = page_of(tenant, f"/t/{world.acme.id}/")
        billing = page_of(tenant, f"/t/{world.acme.id}/billing")
        # What the pages have counted already.
        assert post_due(datetime.now(UTC) + LONGEST_WAIT) > 0
        redis.flushall()
    held = Counter(
        dict(
            asked(
                "SELECT account, -sum(nanos)::bigint FROM billing_ledgerentry"
                " WHERE tenant_id = %s GROUP BY account",
                [world.acme.id],
            )
        )
    )
    parts = {name: held[f"{name}_credit"] for name in ("promotional", "sla", "prepaid")}
    credit, reserved = sum(parts.values()), 3 * _RESERVED_NANOS
    assert reserved < credit < 7_000_000_000 and parts["promotional"] == 0
    assert overview.singles["Credit left"].title == dollars(credit)
    told = {name: billing.singles[name].title for name in ("Credit", "Reserved", "Available")}
    assert told == {
        "Credit": dollars(credit),
        "Reserved": dollars(reserved),
        "Available": dollars(credit - reserved),
    }
    assert billing.singles["Owed"].title == dollars(-held["receivable"])
    balance = tenant.get(f"/api/v1/tenants/{world.acme.id}/balance").json()
    assert {name: balance[f"{name}_credit_nanos"] for name in parts} == parts
    assert (balance["credit_nanos"], balance["owed_nanos"]) == (credit, -held["receivable"])


@pytest.fixture
def first_pool(world: World, settings: Any, dispatch_redis_url: str) -> Iterator[VirtualPool]:
    """That of two models, with a worker of two slots."""
    settings.PENSTOCK_DISPATCH_REDIS_URL = dispatch_redis_url
    with operator_scope("test"):
        pool = Pool.objects.create(name="first-pool")
        for model in ("small", "tiny"):
            ServedModel.objects.create(name=model, pool=pool, context_tokens=8192)
    with Redis.from_url(dispatch_redis_url) as redis:
        redis.flushall()
        virtual = VirtualPool(redis, pool.name)
        virtual.now_ms = int(datetime.now(UTC).timestamp() * 1000)
        virtual.register("w")
        virtual.claim("w", 2)
        yield virtual
        redis.flushall()


def test_open_now_is_what_stands_in_redis(
    tenant: Client, world: World, first_pool: VirtualPool, dispatch_redis_url: str
) -> None:
    names = [f"00000000-0000-7000-8000-{number:012}" for number in range(7)]
    asyncio.run(_reserve(dispatch_redis_url, world.keys[0], names))
    for name in names:
        first_pool.enqueue(Ask(request_id=name, tenant=str(world.acme.id)))
    states = {
        name: first_pool.redis.hget(keys.pool_request("first-pool", name), "state")
        for name in names
    }
    running = [name for name in names if states[name] == b"running"]
    waiting = [name for name in names if states[name] == b"queued"]
    assert len(running) > 0 and len(running) + len(waiting) == 7
    page = page_of(tenant, f"/t/{world.acme.id}/")
    [queue] = page.table("Models", "Running").rows
    assert [cell.text for cell in queue[:4]] == [
        "small, tiny",
        str(len(running)),
        str(len(waiting)),
        str(len(waiting) + 1),
    ]
    requests = page.table("Request", "State").rows
    expected = [
        *((name, "waiting", f"about {place}") for place, name in enumerate(waiting, start=1)),
        *((name, "running", "") for name in running),
    ]
    for (name, state, place), row in zip(expected, requests, strict=True):
        assert name in row[0].text
        assert [cell.text for cell in row[1:4]] == [state, "laptop default", place]


async def _reserve(url: str, key: ApiKey, names: list[str]) -> None:
    """As the gateway does once it has admitted requests."""
    async with AsyncRedis.from_url(url) as redis:
        reservations = Reservations(redis)
        await reservations.load_functions()
        for name in names:
            request = ReservationRequest(
                key_id=str(key.id),
                project_id=str(key.project_id),
                tokens=10,
                nanos=_RESERVED_NANOS,
                pool="first-pool",
                prices=Prices(0, 0, 0, 1000),
            )
            await reservations.reserve(str(key.tenant_id), name, request, _LIMITS)
