"""Which errors of Redis are transient, to workers, gateways and control plane alike."""

from typing import Final

from redis.exceptions import BusyLoadingError, ReadOnlyError, ResponseError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

# A Redis that restarts, fails over or is out of reach.
REDIS_AWAY: Final = (
    RedisConnectionError,
    RedisTimeoutError,
    BusyLoadingError,
    ReadOnlyError,
    OSError,
)


def is_transient(error: BaseException) -> bool:
    """Tell whether a call may be repeated until it succeeds: the Redis is away or being filled."""
    return isinstance(error, REDIS_AWAY) or is_function_missing(error) or is_demoted(error)


def is_function_missing(error: BaseException) -> bool:
    """A Redis that came back empty, and has not been given our functions again yet."""
    return isinstance(error, ResponseError) and "Function not found" in str(error)


def is_demoted(error: BaseException) -> bool:
    """What a blocked call and a stale replica answer in a failover."""
    return isinstance(error, ResponseError) and str(error).startswith(("UNBLOCKED", "MASTERDOWN"))
