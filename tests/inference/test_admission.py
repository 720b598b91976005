"""admission.lua and its Python face: limits, reservations and their sweeper, over a real Redis."""

import time

import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.policy import Caller, TierPolicy
from inference.admission import Admission, sweep
from inference.dispatch import Dispatch
from inference.errors import LimitReached
from tests.inference.cast import POOL, an_envelope
from tests.inference.conftest import PEPPER, a_tier

MINUTE_MS = 60_000


@pytest.fixture
def admission(dispatch_redis: Redis) -> Admission:
    return Admission(dispatch_redis, pepper=PEPPER)


def acme(tier: TierPolicy | None = None, tenant_id: str = "acme") -> Caller:
    return Caller(
        key_id="key",
        tenant_id=tenant_id,
        project_id="project",
        tier=tier or a_tier(),
        tenant_name=tenant_id.title(),
    )


async def test_asking_again_for_the_same_request_is_free(admission: Admission) -> None:
    caller = acme(a_tier(requests_per_minute=1, max_concurrent_requests=1))
    await admission.reserve("a", POOL, caller)
    await admission.reserve("a", POOL, caller)
    with pytest.raises(LimitReached):
        await admission.reserve("b", POOL, caller)


async def test_a_released_request_still_counts_for_the_minute(admission: Admission) -> None:
    caller = acme(a_tier(requests_per_minute=1))
    await admission.reserve("a", POOL, caller)
    await admission.release([("acme", "a")])
    with pytest.raises(LimitReached, match="requests a minute"):
        await admission.reserve("b", POOL, caller)


async def test_the_window_slides(admission: Admission, dispatch_redis: Redis) -> None:
    caller = acme(a_tier(requests_per_minute=2))
    now_ms = time.time_ns() // 1_000_000
    window = keys.tenant_request_window("acme")
    await dispatch_redis.zadd(window, {"old": now_ms - MINUTE_MS - 1, "older": now_ms - 50_000})
    await admission.reserve("a", POOL, caller)
    with pytest.raises(LimitReached) as refused:
        await admission.reserve("b", POOL, caller)
    assert refused.value.retry_after_seconds in (10, 11)


async def test_requests_at_once_are_freed_by_release(admission: Admission) -> None:
    caller = acme(a_tier(max_concurrent_requests=1))
    await admission.reserve("a", POOL, caller)
    with pytest.raises(LimitReached, match="Acme has reached its limit of 1 requests at once"):
        await admission.reserve("b", POOL, caller)
    await admission.release([("acme", "a"), ("acme", "never")])
    await admission.reserve("b", POOL, caller)


async def test_one_tenants_limits_are_not_anothers(admission: Admission) -> None:
    tier = a_tier(requests_per_minute=1)
    await admission.reserve("a", POOL, acme(tier))
    await admission.reserve("b", POOL, acme(tier, "globex"))


async def test_a_limit_of_nothing_refuses_everything(admission: Admission) -> None:
    with pytest.raises(LimitReached):
        await admission.reserve("a", POOL, acme(a_tier(requests_per_minute=0)))


async def test_functions_come_back_after_redis_lost_them(
    admission: Admission, dispatch_redis: Redis
) -> None:
    await dispatch_redis.function_flush()
    await admission.release([("acme", "a")])
    await dispatch_redis.function_flush()
    await admission.reserve("a", POOL, acme())


async def test_the_sweeper_releases_only_what_no_pool_holds_open(
    admission: Admission, dispatch_redis: Redis
) -> None:
    dispatch = Dispatch(dispatch_redis)
    for request_id in ("open", "crashed"):
        await admission.reserve(request_id, POOL, acme())
    await dispatch.enqueue(an_envelope(request_id="open"), max_queue_length=10)
    assert await sweep(dispatch_redis) == 0
    assert await sweep(dispatch_redis, age_ms=-1000) == 1
    assert await dispatch_redis.hkeys(keys.tenant_reservations("acme")) == [b"open"]
