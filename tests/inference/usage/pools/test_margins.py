"""What pools, models and tenants earn beside what they cost: to the nano-dollar."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from inference.models import (
    DailyPoolUsage,
    PoolTenantUsage,
    PoolUsage,
    UsageRollup,
    Worker,
)
from inference.usage.pools.margins import By, margins
from inference.usage.rollups import Use, add_to_rollups
from tenants.access.api_keys import issue_api_key
from tenants.billing.models import PoolCost, PoolHour
from tenants.billing.pricing import price_book
from tenants.billing.pricing.gpu_costs import hour_costs
from tenants.models import ApiKey
from tests.support.commands import refused, run
from tests.support.fleet import worker_info
from tests.support.projects import make_key, make_project

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
HOUR = timedelta(hours=1)


def today() -> tuple[str, ...]:
    day = timezone.now().astimezone(UTC).date().isoformat()
    return "--from", day, "--to", day


def told(*arguments: str) -> Any:
    """What the command says of today."""
    return run("show_margins", *today(), *arguments)


def this_hour() -> datetime:
    return timezone.now().replace(minute=0, second=0, microsecond=0)


def test_the_life_of_workers_is_added_up_by_pool_and_hour() -> None:
    ten = datetime(2026, 11, 21, 10, tzinfo=UTC)
    begun = int(ten.timestamp() * 1000)
    one, two = (worker_info(worker_id=name, pool="p", started_at_ms=begun) for name in "ab")
    Worker.objects.sync([one, two], ten + timedelta(seconds=4))
    Worker.objects.sync([one, two], ten + timedelta(seconds=9))
    Worker.objects.sync([one], ten + HOUR)
    hours = list(PoolHour.objects.order_by("hour").values_list("pool", "hour", "worker_ms"))
    # Nobody looked for most of the hour: of a gap no more counts than a lease and a copy.
    assert hours == [("p", ten, 18_000), ("p", ten + HOUR, 16_000)]


def test_margin_and_cost_per_1000_tokens() -> None:
    price_book.enter(PoolCost(pool="paid", micros_per_gpu_hour=2_500_000, gpus_per_worker=2))
    for pool in ("paid", "unpriced"):
        PoolHour.objects.create(pool=pool, hour=this_hour(), worker_ms=1_800_000)
    spent = hour_costs(this_hour(), this_hour() + HOUR)
    assert spent == {("paid", this_hour()): (3_600_000, 2_500_000_000)}
    project, now = make_project("Acme", "premium"), timezone.now()
    add_to_rollups(
        [
            Use(
                tenant_id=str(project.tenant_id),
                project_id=str(project.id),
                api_key_id=str(issue_api_key(project).record.id),
                tier="premium",
                pool="paid",
                model="m",
                adapter="",
                arrived_ms=int(now.timestamp() * 1000),
                outcome="completed",
                prompt_tokens=900,
                completion_tokens=100,
                cost_nanos=3_000_000_000,
            )
        ]
    )
    assert told() == [
        {
            "pool": "paid",
            "tokens": 1000,
            "gpu_hours": "1.00",
            "revenue": "$3.00",
            "cost": "$2.50",
            "margin": "$0.50",
            "cost_per_1k_tokens": "$2.50",
            "idle": "$0.00",
        }
    ]


def test_a_pool_that_nobody_used_costs_all_the_same() -> None:
    price_book.enter(PoolCost(pool="p", micros_per_gpu_hour=1_000_000))
    PoolHour.objects.create(pool="p", hour=this_hour(), worker_ms=3_600_000)
    [row] = told()
    assert (row["cost"], row["margin"], row["cost_per_1k_tokens"]) == ("$1.00", "-$1.00", None)
    assert row["idle"] == "$1.00"
    assert told("--by", "model") == [
        {
            "model": "(idle)",
            "tokens": 0,
            "revenue": "$0.00",
            "cost": "$1.00",
            "margin": "-$1.00",
            "cost_per_1k_tokens": None,
        }
    ]


# Dealing out --------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Used:
    """By one tenant of one model, in an hour of a pool, counted from this one: costs begin now."""

    tenant: int
    pool: str
    model: str
    hour: int
    prompt_tokens: int
    completion_tokens: int

    @property
    def units(self) -> int:
        return self.prompt_tokens + 2 * self.completion_tokens


TOKENS = st.integers(0, 10**6)
USED = st.builds(
    Used,
    tenant=st.integers(0, 3),
    pool=st.sampled_from(["a", "b", "unpriced"]),
    model=st.sampled_from(["small", "large"]),
    hour=st.integers(0, 2),
    prompt_tokens=TOKENS,
    completion_tokens=TOKENS,
)


def dealt(nanos: int, units: dict[str, int]) -> dict[str, int]:
    """The largest remainder, the other way around: one nano-dollar at a time would be the same."""
    total = sum(units.values())
    exact = {name: Fraction(nanos * each, total) for name, each in units.items()}
    parts = {name: int(each) for name, each in exact.items()}
    by_rest = sorted(units, key=lambda name: (parts[name] - exact[name], name))
    for name in by_rest[: nanos - sum(parts.values())]:
        parts[name] += 1
    return parts


@given(used=st.lists(USED, max_size=12), worker_ms=st.lists(st.integers(0, 10**7), min_size=6))
def test_an_hours_cost_is_dealt_out_by_units_and_what_is_idle_is_nobodys(
    four: list[ApiKey], used: list[Used], worker_ms: list[int]
) -> None:
    for model in (PoolHour, PoolUsage, DailyPoolUsage, PoolTenantUsage, UsageRollup):
        model._default_manager.all().delete()
    hours = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", 2)]
    for (pool, hour), ms in zip(hours, worker_ms, strict=False):
        PoolHour.objects.create(pool=pool, hour=this_hour() + hour * HOUR, worker_ms=ms)
    add_to_rollups([use_of(four[each.tenant], each) for each in used])
    begin, end = this_hour(), this_hour() + 3 * HOUR
    costs = {key: nanos for key, (_, nanos) in hour_costs(begin, end).items()}
    names: dict[By, Callable[[Used], str]] = {
        By.POOL: lambda each: each.pool,
        By.MODEL: lambda each: each.model,
        By.TENANT: lambda each: str(four[each.tenant].tenant_id),
    }
    for by, name in names.items():
        expected: Counter[str] = Counter()
        idle = 0
        for (pool, begun), nanos in costs.items():
            units: Counter[str] = Counter()
            for each in used:
                if (each.pool, this_hour() + each.hour * HOUR) == (pool, begun):
                    units[name(each)] += each.units
            if sum(units.values()):
                expected.update(dealt(nanos, units))
            else:
                idle += nanos
        found = margins(begin, end, by)
        assert {row.of: row.dealt_nanos for row in found.rows if row.dealt_nanos} == +expected
        assert found.idle_nanos == idle
        assert sum(row.dealt_nanos for row in found.rows) + idle == sum(costs.values())
        assert sum(row.revenue_nanos for row in found.rows) == 7 * len(used)
    by_pool = margins(begin, end)
    assert sum(row.cost_nanos for row in by_pool.rows) == sum(costs.values())


def use_of(key: ApiKey, used: Used) -> Use:
    return Use(
        tenant_id=str(key.tenant_id),
        project_id=str(key.project_id),
        api_key_id=str(key.id),
        tier="premium",
        pool=used.pool,
        model=used.model,
        adapter="",
        arrived_ms=int((this_hour() + used.hour * HOUR).timestamp() * 1000),
        outcome="completed",
        prompt_tokens=used.prompt_tokens,
        completion_tokens=used.completion_tokens,
        cost_nanos=7,
    )


@pytest.fixture
def four() -> list[ApiKey]:
    """Keys of four tenants, and two pools whose GPUs cost odd amounts."""
    price_book.enter(PoolCost(pool="a", micros_per_gpu_hour=2_345_677))
    price_book.enter(PoolCost(pool="b", micros_per_gpu_hour=999_983, gpus_per_worker=3))
    return [make_key(f"Tenant {number}") for number in range(4)]


def test_margins_of_usage_that_is_not_summed_up_yet_are_refused() -> None:
    key = make_key("Acme")
    used = Used(tenant=0, pool="a", model="m", hour=0, prompt_tokens=1, completion_tokens=1)
    add_to_rollups([use_of(key, used)])
    PoolUsage.objects.all().delete()
    assert "rebuild_usage_sums" in refused("show_margins", *today())


def test_tenants_are_told_by_name() -> None:
    price_book.enter(PoolCost(pool="a", micros_per_gpu_hour=1_000_000))
    PoolHour.objects.create(pool="a", hour=this_hour(), worker_ms=3_600_000)
    for name, tokens in (("Acme", 300), ("Globex", 100)):
        used = Used(
            tenant=0, pool="a", model="m", hour=0, prompt_tokens=tokens, completion_tokens=0
        )
        add_to_rollups([use_of(make_key(name), used)])
    rows = {row["name"]: row["cost"] for row in told("--by", "tenant")}
    assert rows == {"Acme": "$0.75", "Globex": "$0.25"}
