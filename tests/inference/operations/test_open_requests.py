"""What a tenant has open, over the real functions of admission and dispatch."""

import asyncio
from collections.abc import Iterator
from typing import cast

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Prices
from gpu_workers.protocol.policy import LimitName
from inference.admission.limits import LimitScope, ScopedLimit, packed
from inference.admission.reservations import ReservationRequest, Reservations
from inference.operations import open_requests
from inference.operations.open_requests import OpenNow, read_open
from tests.support.dispatch.virtual_pool import Ask, VirtualPool
from tests.support.servers import TestServers

LIMITS = packed([ScopedLimit(LimitScope.TIER, LimitName.REQUESTS_PER_MINUTE, 1000)])


@pytest.fixture
def pool(test_servers: TestServers) -> Iterator[VirtualPool]:
    """The pool `virtual`, in the time of Redis, with a worker of two slots."""
    with Redis.from_url(test_servers.dispatch_redis.url) as redis:
        redis.flushall()
        pool = VirtualPool(redis)
        seconds, _ = cast("tuple[int, int]", redis.time())
        pool.now_ms = seconds * 1000
        pool.register("w")
        pool.claim("w", 2)
        yield pool
        redis.flushall()


def ask(pool: VirtualPool, url: str, tenant: str, *request_ids: str) -> None:
    """Reserve and enqueue requests, one after the other."""
    asyncio.run(_reserve(url, tenant, request_ids))
    for request_id in request_ids:
        pool.enqueue(Ask(request_id=request_id, tenant=tenant))


async def _reserve(url: str, tenant: str, request_ids: tuple[str, ...]) -> None:
    async with AsyncRedis.from_url(url) as redis:
        reservations = Reservations(redis)
        await reservations.load_functions()
        for request_id in request_ids:
            request = ReservationRequest(
                key_id="key",
                project_id="web",
                tokens=10,
                nanos=5,
                pool="virtual",
                prices=Prices(0, 0, 0, 1000),
            )
            await reservations.reserve(tenant, request_id, request, LIMITS)


def seen(pool: VirtualPool, tenant: str) -> OpenNow:
    return read_open(pool.redis, tenant, "interactive", ["virtual"])


def test_nothing_open_is_nothing_told(pool: VirtualPool) -> None:
    now = seen(pool, "acme")
    assert (now.count, now.requests) == (0, ())
    [use] = now.pools
    assert (use.running, use.waiting, use.position) == (0, 0, 0)


def test_what_runs_and_what_waits_with_its_places(
    pool: VirtualPool, dispatch_redis_url: str
) -> None:
    ask(pool, dispatch_redis_url, "acme", *(f"a{number}" for number in range(5)))
    now = seen(pool, "acme")
    [use] = now.pools
    assert now.count == 5 and use.running + use.waiting == 5
    assert use.position == pool.outlook("acme")[0]
    waiting = [each for each in now.requests if each.position is not None]
    assert len(waiting) == use.waiting >= 3
    # Those that wait come first, and alone in the queue each is where it came.
    assert now.requests[: len(waiting)] == tuple(waiting)
    assert [each.position for each in waiting] == [*range(1, len(waiting) + 1)]
    ids = [each.request_id for each in waiting]
    assert ids == sorted(ids)
    assert {each.attempt for each in now.requests[len(waiting) :]} == {1}


def test_others_have_their_turns_between(pool: VirtualPool, dispatch_redis_url: str) -> None:
    ask(pool, dispatch_redis_url, "globex", *(f"g{number}" for number in range(8)))
    ask(pool, dispatch_redis_url, "acme", "a0", "a1", "a2")
    now = seen(pool, "acme")
    places = [each.position for each in now.requests]
    assert places == sorted(places, key=lambda place: place or 0)
    [use] = now.pools
    assert places[-1] is not None and places[-1] > 3 and places[-1] <= use.position
    assert {each.request_id[0] for each in now.requests} == {"a"}


def test_one_that_has_ended_is_not_open(pool: VirtualPool, dispatch_redis_url: str) -> None:
    ask(pool, dispatch_redis_url, "acme", "a0")
    pool.finish("a0", 1)
    assert seen(pool, "acme").requests == ()


def test_of_too_many_the_oldest_are_not_looked_for(
    pool: VirtualPool, dispatch_redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_requests, "_MOST_READ", 2)
    ask(pool, dispatch_redis_url, "acme", "a0", "a1", "a2")
    now = seen(pool, "acme")
    assert (now.count, now.requests) == (3, ())


def test_bytes_of_another_version_are_left_out(pool: VirtualPool, dispatch_redis_url: str) -> None:
    ask(pool, dispatch_redis_url, "acme", "a0")
    pool.redis.hset(keys.tenant_reservations("acme"), "a1", b"\xc1")
    assert [each.request_id for each in seen(pool, "acme").requests] == ["a0"]
