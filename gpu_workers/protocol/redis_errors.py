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
    """Tell whether a call may be repeated until it succeeds: Redis is away or being filled."""
    return isinstance(error, REDIS_AWAY) or is_function_missing(error) or is_demoted(error)


def is_function_missing(error: BaseException) -> bool:
    """Tell whether a Redis has come back empty and our functions are not loaded into it yet."""
    return isinstance(error, ResponseError) and "Function not found" in str(error)


def is_demoted(error: BaseException) -> bool:
    """Tell whether this is how a blocked call or a stale replica answers during a failover."""
    return isinstance(error, ResponseError) and str(error).startswith(("UNBLOCKED", "MASTERDOWN"))
