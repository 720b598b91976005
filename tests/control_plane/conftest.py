from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

import inference


@pytest.fixture
def empty_redis(dispatch_redis_url: str) -> Iterator[Redis]:
    """The dispatch Redis as it is after a restart: without functions too."""
    with Redis.from_url(dispatch_redis_url) as redis:
        redis.flushall()
        redis.function_flush("SYNC")
        yield redis


@pytest.fixture
def functions_loaded(empty_redis: Redis) -> None:
    for source in Path(inference.__file__).parent.glob("*.lua"):
        empty_redis.function_load(source.read_text(), replace=True)
