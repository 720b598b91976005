"""The dispatch Redis with one pool, and a key of Acme's."""

from collections.abc import Iterator

import pytest
from redis import Redis

from gpu_workers.protocol import keys
from tenants.models import ApiKey
from tests.support.projects import make_key
from tests.support.usage_entries import POOL


@pytest.fixture
def redis(dispatch_redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(dispatch_redis_url) as client:
        client.flushall()
        client.sadd(keys.known_pools(), POOL)
        yield client


@pytest.fixture
def api_key(redis: Redis, operators_session: None) -> ApiKey:
    return make_key("Acme")
