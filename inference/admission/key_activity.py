"""What a gateway tells the control plane of keys: when they were last used, and their digests
under a new pepper. Gathered in the process and written in the background, never on the hot path."""

import asyncio
import time
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.protocol import keys
from gpu_workers.protocol.clock import now_ms
from inference.background import Background

# A key's last use is told at most so often.
REPORT_SECONDS: Final = 60.0
_FLUSH_SECONDS: Final = 1.0
_KEYS_REMEMBERED: Final = 100_000

# What redis-py takes for fields and values.
_Text = bytes | bytearray | memoryview | str | int | float


class KeyActivity:
    """The uses of one gateway process."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._background = Background()
        self._reported_at: dict[str, float] = {}
        self._uses: dict[_Text, _Text] = {}
        self._digests: dict[_Text, _Text] = {}

    def start(self) -> None:
        self._background.supervise(self._flush_regularly, name="key-uses")

    async def stop(self) -> None:
        """Report the rest, if Redis is there to hear it."""
        await self._background.stop()
        try:
            await self.flush()
        except (RedisError, OSError):
            return

    def note_use(self, public_id: str) -> None:
        now = time.monotonic()
        if now - self._reported_at.get(public_id, -REPORT_SECONDS) < REPORT_SECONDS:
            return
        if len(self._reported_at) >= _KEYS_REMEMBERED:
            self._reported_at.clear()
        self._reported_at[public_id] = now
        self._uses[public_id] = now_ms()

    def note_digest(self, public_id: str, digests: bytes) -> None:
        self._digests[public_id] = digests

    async def flush(self) -> None:
        """Write what has gathered; keep it where that fails."""
        uses, digests = dict(self._uses), dict(self._digests)
        if not uses and not digests:
            return
        pipeline = self._redis.pipeline(transaction=False)
        if uses:
            pipeline.hset(keys.policy_key_uses(), mapping=uses)
        if digests:
            pipeline.hset(keys.policy_new_digests(), mapping=digests)
        await pipeline.execute()
        self._uses = {key: at for key, at in self._uses.items() if uses.get(key) != at}
        self._digests = {key: at for key, at in self._digests.items() if digests.get(key) != at}

    async def _flush_regularly(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_SECONDS)
            await self.flush()
