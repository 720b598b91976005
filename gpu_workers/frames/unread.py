"""How much a gateway has not read of what all workers of a pool have written to it, in bytes.

A number of batches would say little: the list is shared, and a thousand workers leave a batch each
while their gateway pauses for a moment.
"""

import time
from typing import Final

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.protocol import keys

MAX_UNREAD_BYTES: Final = 256 * 1024 * 1024
# A list is not looked at while it is short, and no more often than this.
LOOK_BATCHES: Final = 64
LOOK_EVERY_SECONDS: Final = 1.0
# Of the parts of the list, each of several batches, how many are measured.
_SAMPLES: Final = 16

_log = structlog.get_logger("gpu_workers.frames.unread")


class UnreadBytes:
    """Looks at the lists of gateways that one worker of a pool writes to."""

    def __init__(self, redis: Redis, pool: str) -> None:
        self._redis = redis
        self._pool = pool
        self._looked_at: dict[str, float] = {}  # of gateways with long lists (monotonic)

    async def is_too_much(self, gateway_id: str, batches: int) -> bool:
        """Return whether a gateway leaves so much unread that it is not reading; `batches` is the
        length of its list by now."""
        if batches <= LOOK_BATCHES:
            self._looked_at.pop(gateway_id, None)
            return False
        now = time.monotonic()
        if now - self._looked_at.get(gateway_id, 0.0) < LOOK_EVERY_SECONDS:
            return False
        self._looked_at[gateway_id] = now
        try:
            unread = keys.gateway_frames(gateway_id, self._pool)
            size = await self._redis.memory_usage(unread, _SAMPLES)
        except (RedisError, OSError) as error:
            # Away, or its ACL file is older: the list expires with its gateway all the same.
            reason = repr(error)
            _log.warning("unread_not_measured", gateway_id=gateway_id, batches=batches, why=reason)
            return False
        return (size or 0) > MAX_UNREAD_BYTES
