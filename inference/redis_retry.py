"""Retry calls while Redis is away, or came back empty and is being filled again."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from gpu_workers.protocol import redis_errors
from inference.errors import REDIS_ERRORS, PolicyLost, Unavailable

_T = TypeVar("_T")

_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0
_RETRY_AFTER_SECONDS: Final = 2
# For so long newcomers are kept while Redis has no memory for them: each takes memory here instead.
_MEMORY_SECONDS: Final = 2.0


async def retry_until(call: Callable[[], Awaitable[_T]], *, until: float) -> _T:
    """Return the answer of `call`, which must be safe to repeat, as soon as Redis gives one.

    `until` is of `time.monotonic`. Raises `Unavailable` where the next try would begin after it,
    or where Redis still has no memory after two seconds, and any error that is not transient at
    once."""
    pause = _FIRST_PAUSE_SECONDS
    memory_until = min(until, time.monotonic() + _MEMORY_SECONDS)
    while True:
        try:
            return await call()
        except Exception as error:
            if not is_transient(error):
                raise
            REDIS_ERRORS.inc()
            if redis_errors.is_out_of_memory(error) and time.monotonic() + pause > memory_until:
                raise Unavailable(
                    "The service has no memory left for waiting requests; ask again.",
                    code="queue_memory_full",
                    retry_after_seconds=_RETRY_AFTER_SECONDS,
                ) from error
            if time.monotonic() + pause > until:
                raise Unavailable(
                    "The service could not reach its queue in time; ask again.",
                    retry_after_seconds=_RETRY_AFTER_SECONDS,
                ) from error
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def is_transient(error: Exception) -> bool:
    """Return whether a retry may succeed: Redis restarts, fails over, or is being filled again."""
    return isinstance(error, PolicyLost) or redis_errors.is_transient(error)
