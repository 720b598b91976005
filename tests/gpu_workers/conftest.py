"""What the worker's tests share: its Redis user and a gateway that reads its frames."""

from collections.abc import Callable

import pytest
from redis.asyncio import Redis

from tests.support.workers.listening_gateway import FakeGateway


@pytest.fixture
def sim_redis_url(worker_redis_url: Callable[[str], str]) -> str:
    return worker_redis_url("sim")


@pytest.fixture
async def gateway(dispatch_redis: Redis) -> FakeGateway:
    gateway = FakeGateway(dispatch_redis)
    await gateway.appear()
    return gateway
