"""Which errors of Redis are weather, to workers, gateways and control plane alike: they pass, and
the call may be repeated until it succeeds."""

import re
from typing import Final

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

# A Redis that is out of reach, or gives no answer: whether it ran the call is unknown.
REDIS_AWAY: Final = (RedisConnectionError, RedisTimeoutError, OSError)

# Codes with which a Redis refuses a call that it has not run, for as long as something lasts.
OUT_OF_MEMORY: Final = "OOM"
_WEATHER: Final = frozenset(
    {
        OUT_OF_MEMORY,  # it holds `maxmemory`
        "BUSY",  # another call runs for longer than `busy-reply-threshold`
        "LOADING",  # it reads its data set from disk
        "READONLY",  # a master that has become a replica
        "MASTERDOWN",  # a stale replica
        "UNBLOCKED",  # a blocked call, when its server becomes a replica
        "NOREPLICAS",  # fewer replicas in step than `min-replicas-to-write`
        "MISCONF",  # it cannot write its data set to disk
        "TRYAGAIN",  # a cluster moves the slot
        "CLUSTERDOWN",  # a cluster has no master for the slot
    }
)
# redis-py gives some codes as `status_code`; others begin the message, which pipelines quote.
_CODE: Final = re.compile(r"(?:^|caused error: \(['\"])([A-Z]+) ")


def is_transient(error: BaseException) -> bool:
    """Return whether a call may be repeated until it succeeds: Redis is away, refuses calls for the
    time being, or is being filled."""
    return isinstance(error, REDIS_AWAY) or is_function_missing(error) or code_of(error) in _WEATHER


def is_function_missing(error: object) -> bool:
    """Return whether a Redis has come back empty and our functions are not loaded into it yet."""
    return isinstance(error, ResponseError) and "Function not found" in str(error)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether Redis holds all that it may: only calls that free memory are run."""
    return code_of(error) == OUT_OF_MEMORY


def code_of(error: BaseException) -> str:
    """Return the code that an answer of Redis begins with, as OOM; "" where there is none."""
    if not isinstance(error, RedisError):
        return ""
    if code := getattr(error, "status_code", None):
        return str(code)
    found = _CODE.search(str(error))
    return found[1] if found else ""
