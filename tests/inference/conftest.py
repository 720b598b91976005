"""A gateway behind a live server, a policy snapshot for Acme and Globex, a scripted worker."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from redis.asyncio import Redis

from inference.lifecycle.completions import GatewaySettings
from tests.support.gateways.cast import POOL
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import (
    Service,
    Snapshot,
    a_service,
    a_tier,
    settings_of,
)


@pytest.fixture
def gateway_settings(gateway_redis_url: str) -> GatewaySettings:
    return settings_of(gateway_redis_url)


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
