"""What this process tells workers of the frames that have come, so that they leave with a finished
request only those that may not have."""

import asyncio
import time
from typing import Final

from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Confirmation, FrameBatch
from gpu_workers.protocol.redis_errors import is_transient

# The longer, the more of each request's output its worker leaves with its end.
CONFIRM_EVERY_SECONDS: Final = 0.25
# A batch that was lost belongs to streams that ask for it by then, with their next frame or idle.
LOSS_SECONDS: Final = 5.0
FORGET_SECONDS: Final = 60.0
# So that nothing stays behind where the worker is gone.
UNREAD_TTL_SECONDS: Final = 60


class _Heard:
    __slots__ = ("at", "confirmed", "not_before", "number", "pool")

    def __init__(self, pool: str, number: int) -> None:
        self.pool = pool
        self.number, self.confirmed = number, 0
        self.at = self.not_before = time.monotonic()


class Confirmations:
    """The last batch of each worker, and whether it has been told so."""

    def __init__(self, redis: Redis, gateway_id: str) -> None:
        self._redis = redis
        self._gateway_id = gateway_id
        self._heard: dict[str, _Heard] = {}

    def note(self, batch: FrameBatch, pool: str | None) -> None:
        """Note that a batch has come, of a worker of this pool; None where none of its frames
        proves that. Where a batch before it has not come, nothing is confirmed for a while: a
        confirmation is one of all batches before it too."""
        heard = self._heard.get(batch.worker_id)
        if heard is None:
            if pool is not None:
                self._heard[batch.worker_id] = _Heard(pool, batch.number)
            return
        heard.at = time.monotonic()
        if batch.number != heard.number + 1:
            heard.not_before = heard.at + LOSS_SECONDS
        heard.number = batch.number

    async def run(self) -> None:
        while True:
            await asyncio.sleep(CONFIRM_EVERY_SECONDS)
            await self.confirm()

    async def confirm(self) -> None:
        """Tell each worker of what has come since the last time."""
        now, pipeline = time.monotonic(), self._redis.pipeline(transaction=False)
        for worker_id, heard in list(self._heard.items()):
            if heard.number != heard.confirmed and now >= heard.not_before:
                heard.confirmed = heard.number
                message = Confirmation(gateway_id=self._gateway_id, number=heard.number)
                inbox = keys.pool_inbox(heard.pool, worker_id)
                pipeline.rpush(inbox, codec.encode_confirmation(message))
                pipeline.expire(inbox, UNREAD_TTL_SECONDS)
            elif now - heard.at > FORGET_SECONDS:
                del self._heard[worker_id]
        for answer in await pipeline.execute(raise_on_error=False):
            # An inbox of another type is the trouble of its pool.
            if isinstance(answer, Exception) and is_transient(answer):
                raise answer
