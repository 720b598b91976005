"""Memory is refused to newcomers, with a typed error, by us before Redis has to; and where Redis
has none left all the same, what is under way ends."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from inference.lifecycle.completions import GatewaySettings
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.processes import a_sim_worker
from tests.support.gateways.service import Service, Snapshot, a_service
from tests.support.polling import eventually

CHAT = "/v1/chat/completions"
KIB = 1024


def asking(kib: int, **changes: Any) -> dict[str, Any]:
    text = "water " * (kib * KIB // 6) or "Talk."
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **changes}


@pytest.fixture
async def small_service(
    gateway_settings: GatewaySettings, snapshot: Snapshot
) -> AsyncIterator[Service]:
    """A pool may hold 64 KiB of requests."""
    async with a_service(replace(gateway_settings, max_queue_bytes=64 * KIB), snapshot) as service:
        await snapshot.add_model(MODEL, context_tokens=1_000_000)
        yield service


@asynccontextmanager
async def waiting(service: Service, key: str, body: dict[str, Any]) -> AsyncIterator[None]:
    """A request that waits in the queue while the block runs."""
    completions = service.gateway.completions
    before = len(completions.settlement.requests)
    async with service.client(key) as client:
        asked = asyncio.create_task(client.post(CHAT, json=body, timeout=60))
        await eventually(lambda: len(completions.settlement.requests) > before)
        await eventually(
            lambda: all(each.is_enqueued for each in completions.settlement.requests.all())
        )
        try:
            yield
        finally:
            asked.cancel()
            await asyncio.wait([asked])


async def answer_to(service: Service, key: str, body: dict[str, Any]) -> httpx.Response:
    async with service.client(key) as client:
        return await client.post(CHAT, json=body, timeout=30)


async def is_unreserved(redis: Redis, tenant: str) -> bool:
    return await redis.hlen(keys.tenant_reservations(tenant)) == 0


async def test_a_tenant_that_holds_its_share_is_told_so(
    small_service: Service, dispatch_redis: Redis
) -> None:
    service = small_service
    async with waiting(service, service.alice, asking(10)):
        refused = await answer_to(service, service.alice, asking(10))
        assert refused.status_code == 429
        error = refused.json()["error"]
        assert error["code"] == "queue_memory_share_full"
        assert int(refused.headers["retry-after"]) > 0
        limit = error["penstock"]
        assert (limit["limit"], limit["scope"], limit["limit_value"]) == (
            "queue_bytes",
            "tenant",
            16 * KIB,
        )
        assert 10 * KIB < limit["used"] < 12 * KIB
        async with waiting(service, service.bob, asking(10)):
            assert await dispatch_redis.zcard(keys.pool_open_requests(POOL)) == 2
    await eventually(lambda: is_unreserved(dispatch_redis, "acme"))


async def test_a_newcomer_to_a_full_pool_is_told_to_come_back(
    small_service: Service, dispatch_redis: Redis
) -> None:
    service = small_service
    async with waiting(service, service.alice, asking(50)):
        refused = await answer_to(service, service.bob, asking(30))
    assert refused.status_code == 503
    assert refused.json()["error"]["code"] == "queue_memory_full"
    assert int(refused.headers["retry-after"]) > 0
    await eventually(lambda: is_unreserved(dispatch_redis, "globex"))

    async def is_empty() -> bool:
        return not await dispatch_redis.hget(keys.pool_scheduler(POOL), "payload") or (
            float(await dispatch_redis.hget(keys.pool_scheduler(POOL), "payload") or 0) == 0
        )

    await eventually(is_empty)
    async with waiting(service, service.bob, asking(30)):
        assert await dispatch_redis.zcard(keys.pool_open_requests(POOL)) == 1


@asynccontextmanager
async def without_memory(redis: Redis) -> AsyncIterator[None]:
    """Redis holds more than it may while the block runs."""
    await redis.config_set("maxmemory", 1)
    try:
        yield
    finally:
        await redis.config_set("maxmemory", 0)


@pytest.mark.stack
async def test_a_redis_without_memory_refuses_newcomers_and_ends_what_is_under_way(
    service: Service, worker_redis_url: Callable[[str], str], dispatch_redis: Redis
) -> None:
    body = asking(0, stream=True, max_tokens=40, ignore_eos=True)
    gateway_id = service.gateway.completions.hub.gateway_id

    async def has_ended() -> bool:
        return await dispatch_redis.zcard(keys.pool_open_requests(POOL)) == 0

    async with a_sim_worker(worker_redis_url(POOL)) as process, service.client() as client:
        async with client.stream("POST", CHAT, json=body, timeout=30) as answer:
            lines = answer.aiter_lines()
            await anext(lines)
            async with without_memory(dispatch_redis):
                beats: Any = await dispatch_redis.zrange(
                    keys.pool_heartbeats(POOL), 0, -1, withscores=True
                )
                [(worker_id, heartbeat)] = beats
                refused, _ = await asyncio.gather(
                    answer_to(service, service.bob, asking(1)), eventually(has_ended, 10)
                )
                later = await dispatch_redis.zscore(keys.pool_heartbeats(POOL), worker_id)
                assert await dispatch_redis.exists(keys.gateway_heartbeat(gateway_id))
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "queue_memory_full"
            assert int(refused.headers["retry-after"]) > 0
            assert later is not None
            assert later > heartbeat, "the lease was renewed"
            assert [line async for line in lines if line][-1] == "data: [DONE]"
        assert process.returncode is None
        again = await client.post(CHAT, json=asking(1, max_tokens=3), timeout=30)
        assert again.status_code == 200
    await eventually(lambda: is_unreserved(dispatch_redis, "acme"))
    await eventually(lambda: is_unreserved(dispatch_redis, "globex"))
