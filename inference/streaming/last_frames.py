"""The ends of requests that workers have finished, as Redis keeps them for whoever has missed one:
read where an end does not come by itself, removed once it has come."""

import asyncio
from typing import Final

import structlog
from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.codec import WireFormatError
from inference.streaming.token_stream import TokenStream

_log = structlog.get_logger(__name__)

REMOVE_EVERY_SECONDS: Final = 1.0
_REMOVED_AT_ONCE: Final = 500


class LastFrames:
    """Removes in bulk, since each admitted request leaves some: they hold output."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._read: dict[str, list[str]] = {}

    async def feed(self, stream: TokenStream) -> None:
        """Give a stream what is kept of its request, if that has been finished by a worker."""
        kept = await self._redis.get(keys.pool_last_frames(stream.pool, stream.request_id))
        if not isinstance(kept, bytes):
            return
        try:
            batch = codec.decode_frames(kept)
        except WireFormatError as error:
            _log.error("last_frames_unreadable", reason=str(error)[:200])
            return
        for frame in batch.frames:
            if frame.request_id == stream.request_id:
                stream.note_holder(frame.attempt, batch.worker_id)
                stream.feed(frame, batch.worker_id)

    def remove(self, pool: str, request_id: str) -> None:
        """Have removed what nobody needs any more. Returns at once."""
        self._read.setdefault(pool, []).append(keys.pool_last_frames(pool, request_id))

    async def run(self) -> None:
        while True:
            await asyncio.sleep(REMOVE_EVERY_SECONDS)
            await self.flush()

    async def flush(self) -> None:
        """Remove what is due. What a failed call leaves there expires."""
        read, self._read = self._read, {}
        if not read:
            return
        pipeline = self._redis.pipeline(transaction=False)
        for of_pool in read.values():
            for first in range(0, len(of_pool), _REMOVED_AT_ONCE):
                pipeline.unlink(*of_pool[first : first + _REMOVED_AT_ONCE])
        await pipeline.execute()
