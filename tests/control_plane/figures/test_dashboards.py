"""Dashboards of operators say of known usage and refusals what PostgreSQL sums up from the records
themselves, and of queues what stands in Redis."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from control_plane.web.figures import short_number
from django.test import Client
from django.urls import reverse
from redis import Redis

from gpu_workers.protocol import keys
from tests.support.dispatch.virtual_pool import Ask, VirtualPool
from tests.support.figures.asking import (
    RANGE,
    check_percentiles,
    days,
    file_rows,
    in_one_hour,
    is_near,
    page_of,
    told_of,
)
from tests.support.figures.direct_sums import (
    LATENCIES,
    QUANTILES,
    asked,
    summed,
)
from tests.support.figures.world import World

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)
# A month's error budget is gone in two days.
FAST_BURN = 14.4
# What the scheduler gives a class for each unit of a tenant's weight.
CLASS_WEIGHTS = {"interactive": 8, "batch": 1}
# What docs/sla.md says, in the words of PostgreSQL.
COUNTED = """
WITH judged AS (
    SELECT tier, outcome IN ('failed', 'expired') AS is_down,
        CASE WHEN prompt_tokens - cached_tokens > 2000 THEN NULL
            WHEN ttft_ms IS NOT NULL THEN ttft_ms <= ttft_target_ms
            WHEN outcome IN ('cancelled', 'failed', 'expired')
                AND finished_at - arrived_at > ttft_target_ms * interval '1 ms' THEN false
        END AS is_soon,
        CASE WHEN itl_p95_ms IS NOT NULL
            THEN itl_p95_ms <= inter_token_target_ms OR completion_tokens < 21 END AS is_fluent
    FROM inference_usagerecord JOIN tenants_tier ON name = tier
    WHERE owed AND arrived_at >= %s
)
SELECT tier, count(is_soon), count(*) FILTER (WHERE is_soon), count(is_fluent),
    count(*) FILTER (WHERE is_fluent), count(*), count(*) FILTER (WHERE NOT is_down)
FROM judged GROUP BY tier
"""


@pytest.mark.parametrize(
    ("table", "column"),
    [("tier", "tier"), ("pool", "pool"), ("model", "model"), ("tenant", "tenant_id")],
)
def test_latency_is_that_of_the_records(
    operator: Client, world: World, table: str, column: str
) -> None:
    expected = {str(key): row for (key,), row in summed(*days(RANGE), column).items()}
    told = {
        row[column]: row
        for row in file_rows(operator, reverse("admin:dashboard-latency-csv", args=[table]), RANGE)
    }
    page = page_of(operator, reverse("admin:dashboard-latency"), RANGE)
    shown = page.with_id(f"latency-{table}-table")
    assert told.keys() == expected.keys()
    in_words = dict(zip(LATENCIES, ("ttft", "inter_token", "queue", "end_to_end"), strict=True))
    for key, right in expected.items():
        assert int(told[key]["requests"]) == right["requests"]
        cells = shown.row(told[key][table])
        assert cells[1].text == short_number(right["requests"])
        for place, (name, word) in enumerate(in_words.items()):
            check_percentiles([told[key][f"{word}_p{p}_ms"] for p in (50, 95, 99)], right[name])
            for cell, exact in zip(cells[2 + 3 * place :], right[name], strict=False):
                assert is_near(cell.text, exact), (key, name, cell.text, exact)
    assert len(QUANTILES) * len(LATENCIES) + 2 == len(shown.rows[0])


def test_attainment_is_counted_from_the_records(operator: Client, world: World) -> None:
    right = counted_since(datetime(2000, 1, 1, tzinfo=UTC))
    in_file = file_rows(operator, reverse("admin:dashboard-attainment-csv", args=["tier"]), RANGE)
    assert right == {
        (row["tier"], row["promise"]): (int(row["measured"]), int(row["within_target"]))
        for row in in_file
    }
    hour, page = in_one_hour(
        lambda: page_of(operator, reverse("admin:dashboard-attainment"), RANGE)
    )
    hour_ago, day_ago = (counted_since(hour - each * HOUR) for each in (1, 24))
    words = {"ttft": "time to first token", "inter_token": "inter-token latency"}
    words["uptime"] = "uptime"
    told = {(row[0].text, row[1].text): row for row in page.with_id("attainment-table").rows}
    assert told.keys() == {(tier, words[promise]) for tier, promise in right}
    for (tier, promise), (total, kept) in right.items():
        row = told[tier, words[promise]]
        fast, slow = (each.get((tier, promise), (0, 0)) for each in (hour_ago, day_ago))
        permille = 10 if promise != "uptime" else uptime_permille(tier)
        used = burn_rate(total, kept, permille)
        assert used is not None
        fast_rate, slow_rate = (burn_rate(*each, permille) for each in (fast, slow))
        is_burning = (fast_rate or 0) > FAST_BURN or (slow_rate or 0) > 1
        hundredths = kept * 10_000 // total
        assert [cell.text for cell in row[3:]] == [
            f"{total:,}",
            f"{hundredths // 100}.{hundredths % 100:02} %",
            f"{total - kept:,}",
            f"{float(100 * used):,.0f} %",
            times(fast_rate),
            times(slow_rate),
            "missed" if used > 1 else "burning" if is_burning else "kept",
        ]


def counted_since(since: datetime) -> dict[tuple[str, str], tuple[int, int]]:
    """By tier and promise the requests that were measured, and those within their target."""
    found = {}
    for tier, *counts in asked(COUNTED, [since]):
        for place, promise in enumerate(("ttft", "inter_token", "uptime")):
            total, kept = counts[2 * place : 2 * place + 2]
            if total:
                found[tier, promise] = (total, kept)
    return found


def uptime_permille(tier: str) -> Fraction:
    """How many of a thousand requests the tier leaves."""
    [(percent,)] = asked("SELECT uptime_percent FROM tenants_tier WHERE name = %s", [tier])
    return 10 * (100 - Fraction(percent))


def burn_rate(total: int, kept: int, permille: Fraction | int) -> Fraction | None:
    """How many times as many missed their target as may."""
    return Fraction(1000 * (total - kept), total) / permille if total else None


def times(burning: Fraction | None) -> str:
    return "–" if burning is None else f"{float(burning):,.1f}x"


@pytest.mark.parametrize(
    ("table", "names"),
    [("code", ("code", "limit", "scope")), ("model", ("model",)), ("tenant", ("tenant_id",))],
)
def test_refusals_of_all_tenants_are_what_gateways_told(
    operator: Client, world: World, table: str, names: tuple[str, ...]
) -> None:
    expected = told_of(world, *names)
    in_file = file_rows(operator, reverse("admin:dashboard-refusals-csv", args=[table]), RANGE)
    assert {tuple(row[name] for name in names): int(row["refusals"]) for row in in_file} == expected
    page = page_of(operator, reverse("admin:dashboard-refusals"), RANGE)
    shown = page.with_id(f"refusals-{table}-table")
    column = 2 if table == "code" else 1
    told = Counter((row[column].text, row[column + 1].text) for row in shown.rows)
    percents = {count: Fraction(100 * count, expected.total()) for count in expected.values()}
    shares = {
        count: "< 1 %" if share < 1 else f"{round(share)} %" for count, share in percents.items()
    }
    rows = [(f"{count:,}", shares[count]) for count in expected.values()]
    assert told == Counter([*rows, (f"{expected.total():,}", "")])


@pytest.fixture
def pool(settings: Any, dispatch_redis_url: str) -> Iterator[VirtualPool]:
    """With a worker of three slots."""
    settings.PENSTOCK_DISPATCH_REDIS_URL = dispatch_redis_url
    with Redis.from_url(dispatch_redis_url) as redis:
        redis.flushall()
        redis.sadd(keys.known_pools(), "virtual")
        pool = VirtualPool(redis)
        pool.now_ms = int(datetime.now(UTC).timestamp() * 1000)
        pool.register("w")
        pool.claim("w", 3)
        yield pool
        redis.flushall()


def test_queue_and_shares_are_what_stands_in_redis(
    operator: Client, world: World, pool: VirtualPool
) -> None:
    flows = {
        ("Acme", "interactive"): (world.acme, 3),
        ("Acme", "batch"): (world.acme, 3),
        ("Globex", "interactive"): (world.globex, 2),
    }
    of_flow: dict[tuple[str, str], list[str]] = {each: [] for each in flows}
    for number in range(12):
        flow = [*flows][number % 3]
        (tenant, weight), name = flows[flow], f"r{number}"
        of_flow[flow].append(name)
        ask = Ask(request_id=name, tenant=str(tenant.id), weight=weight, service_class=flow[1])
        pool.enqueue(ask)
    states = {
        name: pool.redis.hget(keys.pool_request("virtual", name), "state")
        for names in of_flow.values()
        for name in names
    }
    counted = {flow: Counter(states[name] for name in names) for flow, names in of_flow.items()}
    page = page_of(operator, reverse("admin:dashboard-queue"))
    waits = {row[0].text: (row[1].text, row[2].text) for row in page.with_id("queue-1-table").rows}
    for service_class, told in waits.items():
        same = [each for (_, name), each in counted.items() if name == service_class]
        assert told == tuple(
            str(sum(each[state] for each in same)) for state in (b"queued", b"running")
        )
    running = sum(each[b"running"] for each in counted.values())
    weights = {flow: weight * CLASS_WEIGHTS[flow[1]] for flow, (_, weight) in flows.items()}
    assert running == 3 and pool.redis.zcard(keys.pool_queue("virtual")) == 9
    shares = {
        (row[0].text, row[1].text): [cell.text for cell in row[2:]]
        for row in page.with_id("share-1-table").rows
    }
    assert shares == {
        flow: [
            f"{100 * weights[flow] / sum(weights.values()):.0f} %",
            f"{100 * each[b'running'] / running:.0f} %",
            str(each[b"running"]),
            str(each[b"queued"]),
            "below its share"
            if each[b"running"] * sum(weights.values()) < weights[flow] * running
            else "",
        ]
        for flow, each in counted.items()
    }
