from collections.abc import Iterator

import pytest
from redis import Redis

from inference.redis_functions import LIBRARIES, library_text


@pytest.fixture
def empty_redis(dispatch_redis_url: str) -> Iterator[Redis]:
    """The dispatch Redis as it is after a restart: without functions too."""
    with Redis.from_url(dispatch_redis_url) as redis:
        redis.flushall()
        redis.function_flush("SYNC")
        yield redis


@pytest.fixture
def functions_loaded(empty_redis: Redis) -> None:
    for library in LIBRARIES:
        empty_redis.function_load(library_text(library), replace=True)
