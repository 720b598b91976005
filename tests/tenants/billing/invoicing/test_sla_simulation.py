"""A tenant that chooses its traffic for SLA credit gains nothing by it.

A strategy is drawn from a small grammar: how much is sent in which hours, when an hour is given up,
and what is sent beside. Its traffic meets a service whose every hour is known to it beforehand, as
no tenant's is. What that comes to is judged by what judges invoices: attainment from the hourly
sums in PostgreSQL, and the schedule of credits. Whoever sends as many requests evenly is its twin,
and no strategy earns more than that.

The sums are written as the intake would write them: requests one by one would be 40 million. What
of a request counts is held by test_chosen_traffic.py, and what the queue owes by the test below.
"""

import random
import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import pytest
from django.db import connection
from redis import Redis

from inference.models.rollup import COUNTERS
from inference.usage.attainment import attainment
from inference.usage.rollups import HISTOGRAMS, IN_TIME, OWED
from tenants.billing.invoicing.sla_credits import Schedule
from tenants.billing.models import Seller
from tenants.billing.periods import end_of, start_of
from tenants.models import Project, Tier
from tests.support.billing.billed_usage import OCTOBER
from tests.support.dispatch.virtual_pool import Ask, Started, VirtualPool

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("seller")]

HOURS: Final = 744
COST: Final = 10**9
MODEL, TIER = "m", "premium"
NOTHING: Final = dict.fromkeys((*COUNTERS, *HISTOGRAMS, *IN_TIME), 0)


@dataclass(frozen=True)
class Service:
    """How likely a request is to fail, and to be late, in each hour of a month."""

    failing: tuple[float, ...]
    late: tuple[float, ...]


@dataclass(frozen=True)
class Hour:
    """Requests that were owed their promises, those that failed, and those that were late."""

    owed: int
    failed: int
    late: int


def service(draw: random.Random, outage: int) -> Service:
    """With an outage of so many hours, and a few hours in which some fail or are late."""
    failing, late = [0.001] * HOURS, [0.002] * HOURS
    hours = draw.sample(range(HOURS), outage + 6)
    for hour in hours[:outage]:
        failing[hour] = 1.0
    for hour in hours[outage : outage + 3]:
        failing[hour] = draw.uniform(0.02, 0.3)
    for hour in hours[outage + 3 :]:
        late[hour] = draw.uniform(0.2, 1.0)
    return Service(tuple(failing), tuple(late))


def amounts(draw: random.Random, known: Service) -> list[int]:
    """How much is sent in each hour."""
    bad = [each > 0.01 or late > 0.01 for each, late in zip(known.failing, known.late, strict=True)]
    few, many = draw.randint(1, 8), draw.randint(9, 70)
    office = [8 <= hour % 24 < 18 for hour in range(HOURS)]
    luck = [draw.random() < 0.2 for _ in range(HOURS)]
    kinds = {
        "evenly": [few] * HOURS,
        "in the office": [many if each else 0 for each in office],
        "in bad hours alone": [many if each else 0 for each in bad],
        "more in bad hours": [many if each else few for each in bad],
        "less in bad hours": [few if each else many for each in bad],
        "now and then": [many if each else 0 for each in luck],
        "one in bad hours": [1 if each else many for each in bad],
    }
    return kinds[draw.choice(list(kinds))]


def outcome(draw: random.Random, known: Service) -> list[Hour]:
    """What a strategy meets with; it may give an hour up once enough has failed or come late."""
    stops_at = draw.choice([0, 0, 1, 2, 5, 30])
    return [
        met(draw, amount, known.failing[hour], known.late[hour], stops_at)
        for hour, amount in enumerate(amounts(draw, known))
    ]


def met(draw: random.Random, amount: int, failing: float, late: float, stops_at: int) -> Hour:
    sent = failed = slow = 0
    while sent < amount and not (stops_at and failed + slow >= stops_at):
        sent += 1
        if draw.random() < failing:
            failed += 1
        elif draw.random() < late:
            slow += 1
    return Hour(sent, failed, slow)


def expected(known: Service, total: int) -> list[Hour]:
    """What as many requests meet with that are sent evenly; counted in thousands, so that there is
    no luck in it."""
    each = max(1, total // HOURS) * 1000
    return [
        Hour(each, round(each * failing), round(each * (1 - failing) * late))
        for failing, late in zip(known.failing, known.late, strict=True)
    ]


def record(tenant_id: uuid.UUID, hours: list[Hour]) -> None:
    """Write the sums of a tenant's month."""
    columns = ("tenant_id", "hour", "project_id", "api_key_id", "model", "adapter", "tier")
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO inference_usagerollup ({', '.join((*columns, *NOTHING, *OWED))})"  # noqa: S608
            " SELECT %s, %s + number * interval '1 hour', %s, %s, %s, '', %s,"
            f" {', '.join(map(str, NOTHING.values()))},"
            " owed, failed, owed - failed, owed - failed - late, 0, 0"
            " FROM unnest(%s::int[], %s::int[], %s::int[], %s::int[])"
            " AS hours(number, owed, failed, late) WHERE owed > 0",
            [
                *(tenant_id, start_of(OCTOBER), tenant_id, tenant_id, MODEL, TIER),
                *(list(range(len(hours))), [each.owed for each in hours]),
                *([each.failed for each in hours], [each.late for each in hours]),
            ],
        )


def credits_of(tenants: list[uuid.UUID]) -> dict[uuid.UUID, int]:
    """What each is credited of the same cost, in nano-dollars."""
    schedule = Schedule.read(Seller.objects.get())
    found = dict.fromkeys(tenants, 0)
    for attained in attainment(tenants, start_of(OCTOBER), end_of(OCTOBER)):
        credited = schedule.credits([attained], {(TIER, MODEL): COST})
        found[attained.tenant_id] += sum(each.credit_nanos for each in credited)
    return found


@pytest.mark.parametrize(
    "strategies", [40, pytest.param(250, marks=pytest.mark.rare)], ids=["some", "many"]
)
def test_no_choice_of_traffic_earns_more_than_sending_evenly(
    acme: Project, strategies: int
) -> None:
    Tier.objects.filter(name=TIER).update(uptime_percent=Decimal("99.0"))
    twins: dict[uuid.UUID, uuid.UUID] = {}
    for seed in range(strategies):
        draw = random.Random(seed)
        known = service(draw, draw.choice([0, 0, 1, 12]))
        hours = outcome(draw, known)
        gamer, honest = uuid.UUID(int=2 * seed + 2), uuid.UUID(int=2 * seed + 3)
        twins[gamer] = honest
        record(gamer, hours)
        record(honest, expected(known, sum(each.owed for each in hours)))
    earned = credits_of([*twins, *twins.values()])
    gained = [gamer for gamer, honest in twins.items() if earned[gamer] > earned[honest]]
    assert gained == []
    assert any(earned[honest] for honest in twins.values()), "the service kept all its promises"
    assert any(earned[gamer] for gamer in twins), "nobody was paid for an outage"


def test_an_outage_pays_an_honest_tenant_in_full(acme: Project) -> None:
    """However much it sends: 40 hours of a month are more than 4.5 points."""
    tenants = [uuid.UUID(int=number) for number in (1, 10, 300)]
    for tenant in tenants:
        amount = tenant.int
        # In an outage a share waits to the deadline, and no more is owed.
        record(
            tenant, [Hour(min(amount, 60), min(amount, 60), 0)] * 40 + [Hour(amount, 0, 0)] * 704
        )
    assert set(credits_of(tenants).values()) == {COST}


# What the queue owes ------------------------------------------------------------------------------

SLOTS, TICKS, SERVED_MS, TARGET_SECONDS = 4, 150, 1000, 5.0


@pytest.mark.parametrize("seed", range(6))
def test_what_a_healthy_pool_owes_a_flood_it_serves_in_time(redis: Redis, seed: int) -> None:
    """The real dispatch functions in virtual time: Acme sends what it likes, Globex a request now
    and then, and each takes a second."""
    draw, pool = random.Random(seed), VirtualPool(redis)
    burst, pause = draw.randint(2, 12), draw.randint(1, 8)
    pool.register("w#1")
    pool.claim("w#1", SLOTS)
    asked: dict[str, int] = {}
    waits: dict[str, int] = {}
    owed: set[str] = set()
    running: dict[str, tuple[Started, int]] = {}
    for tick in range(TICKS):
        pool.now_ms += 100
        ask_for = ["acme"] * (burst if tick % pause == 0 else 0)
        ask_for += ["globex"] * (tick % 10 == 0)
        for number, tenant in enumerate(ask_for):
            name = f"{tenant}-{tick}-{number}"
            ask = Ask(
                request_id=name,
                tenant=tenant,
                project=f"p{draw.randint(1, 5)}",
                key=f"k{draw.randint(1, 5)}",
                sequences=draw.choice([1, 1, 1, 2]) if tenant == "acme" else 1,
                owed_end=b"#owed",
                seconds=TARGET_SECONDS,
            )
            asked[name] = pool.now_ms
            if pool.ask(ask)[-1] == 1:
                owed.add(name)
        for name, (started, end_ms) in list(running.items()):
            if end_ms <= pool.now_ms:
                del running[name]
                pool.finish(name, started.attempt, 10, 10)
        for started in [*pool.inbox("w#1"), *pool.claim("w#1", SLOTS)]:
            running[started.request_id] = (started, pool.now_ms + SERVED_MS)
            waits[started.request_id] = pool.now_ms - asked[started.request_id]
    # What Globex waits for is another's flood, and the service's to pay.
    of_acme = {name for name in asked if name.startswith("acme")}
    assert len(owed & of_acme) < len(of_acme), "all of the flood was owed"
    assert owed & of_acme, "nothing was owed"
    due = [name for name in owed & of_acme if pool.now_ms - asked[name] > TARGET_SECONDS * 1000]
    late = [name for name in due if waits.get(name, TICKS * 100) > TARGET_SECONDS * 1000]
    assert late == []
