"""A gateway behind a live server, a policy snapshot for Acme and Globex, a scripted worker; and the
dispatch Redis with one pool whose usage is collected."""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace

import pytest
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from inference.lifecycle.completions import GatewaySettings
from tests.support.gateways.cast import POOL
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import (
    MAX_BODY_BYTES,
    PEPPER,
    Service,
    Snapshot,
    a_service,
    a_tier,
)
from tests.support.usage_entries import POOL as USAGE_POOL


@pytest.fixture
def gateway_settings(gateway_redis_url: str) -> GatewaySettings:
    return GatewaySettings(
        dispatch_redis_url=gateway_redis_url,
        api_key_pepper=PEPPER,
        cache_salt_secret=b"cache-salt-secret-of-the-gateway-tests",
        allowed_origins=("http://app.example",),
        max_body_bytes=MAX_BODY_BYTES,
        max_queue_length=8,
        max_requests_per_websocket=4,
        drain_seconds=0.5,
    )


@pytest.fixture
def snapshot(dispatch_redis: Redis) -> Snapshot:
    return Snapshot(dispatch_redis)


@pytest.fixture
async def service(gateway_settings: GatewaySettings, snapshot: Snapshot) -> AsyncIterator[Service]:
    async with a_service(gateway_settings, snapshot) as service:
        yield service


@pytest.fixture
async def impatient_service(
    gateway_settings: GatewaySettings, snapshot: Snapshot
) -> AsyncIterator[Service]:
    """Alice's tier waits a second in the queue and no longer."""
    async with a_service(gateway_settings, snapshot) as service:
        key = await snapshot.add_key("Acme", tier=a_tier(max_queue_seconds=1))
        yield replace(service, alice=key)


@pytest.fixture
async def worker(
    worker_redis_url: Callable[[str], str], dispatch_redis: Redis
) -> AsyncIterator[ScriptedWorker]:
    """Not started yet: a test may give it a script first."""
    worker = ScriptedWorker(worker_redis_url(POOL))
    yield worker
    await worker.stop()


@pytest.fixture
def redis(dispatch_redis_url: str) -> Iterator[SyncRedis]:
    """The dispatch Redis, emptied, for tests without an event loop."""
    with SyncRedis.from_url(dispatch_redis_url) as client:
        client.flushall()
        client.sadd(keys.known_pools(), USAGE_POOL)
        yield client
