from collections.abc import Callable, Iterator

import pytest
from redis import Redis

from inference.redis_functions import LIBRARIES, library_text
from tests.support.figures.live_panels import forget_panels


@pytest.fixture(autouse=True)
def forget_readings() -> Iterator[Callable[[], None]]:
    """Panels stay as they were read for some seconds: what one test has read, no other is shown.
    Call it to have them read anew within a test."""
    forget_panels()
    yield forget_panels
    forget_panels()


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
