"""Dispatch as a gateway has it, and the workers' side of it; a pool in virtual time."""

from collections.abc import Iterator

import pytest
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from inference.dispatch.queue import Dispatch
from tests.support.dispatch.bare_calls import Workers
from tests.support.dispatch.virtual_pool import VirtualPool
from tests.support.servers import TestServers


@pytest.fixture
def dispatch(dispatch_redis: Redis) -> Dispatch:
    return Dispatch(dispatch_redis)


@pytest.fixture
def workers(dispatch_redis: Redis) -> Workers:
    return Workers(dispatch_redis)


@pytest.fixture
def pool(test_servers: TestServers) -> Iterator[VirtualPool]:
    with SyncRedis.from_url(test_servers.dispatch_redis.url, socket_timeout=None) as redis:
        redis.flushall()
        yield VirtualPool(redis)
