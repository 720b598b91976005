"""The pools that there are, and looking at each where one's data may be anything: its workers write
what is below its prefix, and a node that is not to be believed may write what nobody can read."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

import structlog
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import ResponseError

from gpu_workers.protocol import keys
from gpu_workers.protocol.redis_errors import is_transient

_log = structlog.get_logger(__name__)

# In what a key of the wrong type, an invented field or number, or another version's message ends.
UNREADABLE: Final = (ResponseError, ValueError, LookupError, TypeError, ArithmeticError)
_TOLD_EVERY_SECONDS: Final = 10.0

_told_at: dict[tuple[str, str], float] = {}  # by event and pool


def known_pools(redis: Redis) -> list[str]:
    """Return the names of all pools that the catalogue has, or had."""
    return _names(redis.smembers(keys.known_pools()))


async def read_known_pools(redis: AsyncRedis) -> list[str]:
    """Return what `known_pools` does."""
    return _names(await redis.smembers(keys.known_pools()))


@contextmanager
def alone(pool: str) -> Iterator[None]:
    """Leave the rest undone where the pool's own data cannot be read, so that the next pool has its
    turn. What is wrong with Redis itself is raised."""
    try:
        yield
    except UNREADABLE as error:
        if is_transient(error):
            raise
        tell_trouble("pool_unreadable", pool, error)


def tell_trouble(event: str, pool: str, error: Exception) -> None:
    """Log what is wrong with what a pool's workers wrote, once in `_TOLD_EVERY_SECONDS`: they may
    write as often as they like."""
    now = time.monotonic()
    if now - _told_at.get((event, pool), float("-inf")) >= _TOLD_EVERY_SECONDS:
        _told_at[event, pool] = now
        _log.error(event, pool=pool, reason=f"{type(error).__name__}: {error}"[:200])


def _names(members: Any) -> list[str]:
    return sorted(each.decode() for each in cast("set[bytes]", members))
