"""Frames on their way to gateways: one write per engine step and gateway, never one per stream.

The first frame after a flush schedules the next flush behind the tasks that the same engine step
woke, so a step's deltas leave together. While a write is under way frames gather for the next
one: the slower Redis is, the larger the batches. What was sent of late is kept, and resent when a
gateway misses it.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from gpu_workers.cancellation import cancel_and_wait
from gpu_workers.frames.ring import FrameRing
from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Frame, FrameBatch, Resend
from gpu_workers.protocol.redis_errors import REDIS_AWAY

# A gateway that leaves so many batches unread, or lets so many frames wait here, is not reading.
MAX_UNREAD_BATCHES: Final = 10_000
MAX_WAITING_FRAMES: Final = 100_000
RETRY_SECONDS: Final = 0.2

_log = structlog.get_logger("gpu_workers.frames.writer")


class FrameWriter:
    """`on_gateway_lost` is called with the id of a gateway that has stopped reading; `on_flush`
    with the number of frames of each write."""

    def __init__(
        self,
        redis: "Redis",
        *,
        worker_id: str,
        on_gateway_lost: Callable[[str], None],
        on_flush: Callable[[int], None] = lambda frames: None,
    ) -> None:
        self._redis = redis
        self._worker_id = worker_id
        self._on_gateway_lost = on_gateway_lost
        self._on_flush = on_flush
        self._ring = FrameRing()
        self._waiting: dict[str, list[Frame]] = {}
        self._writes: dict[str, asyncio.Task[None]] = {}
        self._awaited: dict[str, list[asyncio.Future[None]]] = {}
        self._loop = asyncio.get_running_loop()

    def append(self, gateway_id: str, frame: Frame) -> None:
        """Queue a frame; frames of one request arrive in the order they were appended."""
        self._ring.keep(gateway_id, frame)
        self._queue(gateway_id, frame)

    def end(self, request_id: str, attempt: int) -> None:
        """Note that nothing more is appended for this attempt."""
        self._ring.end(request_id, attempt)

    def resend(self, resend: Resend) -> None:
        """Resend the frames that a gateway missed, if they are still kept; otherwise do nothing,
        and the gateway gives up the stream."""
        gateway_id, frames = self._ring.since(resend.request_id, resend.attempt, resend.from_seq)
        for frame in frames:
            self._queue(gateway_id, frame)
        _log.info(
            "frames_resent",
            request_id=resend.request_id,
            from_seq=resend.from_seq,
            frames=len(frames),
        )

    def _queue(self, gateway_id: str, frame: Frame) -> None:
        waiting = self._waiting.get(gateway_id)
        if waiting is not None:
            waiting.append(frame)
            return
        self._waiting[gateway_id] = [frame]
        if gateway_id not in self._writes:
            self._loop.call_soon(self._start_write, gateway_id)

    async def drain(self, timeout_seconds: float) -> None:
        """Wait until everything appended so far has been written, or give up."""
        async with asyncio.timeout(timeout_seconds):
            while self._waiting or self._writes:
                if self._writes:
                    await asyncio.wait(list(self._writes.values()))
                else:
                    await asyncio.sleep(0)

    async def wait_written(self, gateway_id: str) -> None:
        """Wait until all that was appended for a gateway is in Redis, or the gateway is lost."""
        if gateway_id in self._waiting or gateway_id in self._writes:
            written = self._loop.create_future()
            self._awaited.setdefault(gateway_id, []).append(written)
            await written

    def drop(self, gateway_id: str) -> None:
        """Discard the frames queued for a gateway that is gone."""
        self._waiting.pop(gateway_id, None)
        _resolve(self._awaited.pop(gateway_id, []))

    async def close(self) -> None:
        await cancel_and_wait(self._writes.values())

    def _start_write(self, gateway_id: str) -> None:
        if gateway_id in self._waiting and gateway_id not in self._writes:
            task = self._loop.create_task(self._write(gateway_id), name=f"frames:{gateway_id}")
            self._writes[gateway_id] = task

    async def _write(self, gateway_id: str) -> None:
        try:
            while frames := self._waiting.pop(gateway_id, None):
                awaited = self._awaited.pop(gateway_id, [])
                await self._push(gateway_id, frames)
                _resolve(awaited)
        finally:
            del self._writes[gateway_id]
            if gateway_id in self._waiting:
                self._loop.call_soon(self._start_write, gateway_id)
            else:
                _resolve(self._awaited.pop(gateway_id, []))

    async def _push(self, gateway_id: str, frames: list[Frame]) -> None:
        self._on_flush(len(frames))
        key = keys.gateway_frames(gateway_id)
        batch = codec.encode(FrameBatch(worker_id=self._worker_id, frames=frames))
        while True:
            try:
                unread: int = await self._redis.rpush(key, batch)
                break
            except REDIS_AWAY:
                waiting = self._waiting.get(gateway_id, [])
                if len(waiting) > MAX_WAITING_FRAMES:
                    self._lose(gateway_id, "Redis does not take its frames")
                    return
                await asyncio.sleep(RETRY_SECONDS)
            except ResponseError as error:
                self._lose(gateway_id, str(error))
                return
        if unread > MAX_UNREAD_BATCHES:
            self._lose(gateway_id, "it has stopped reading")

    def _lose(self, gateway_id: str, reason: str) -> None:
        _log.warning("gateway_lost", gateway_id=gateway_id, reason=reason)
        self.drop(gateway_id)
        self._on_gateway_lost(gateway_id)


def _resolve(awaited: "list[asyncio.Future[None]]") -> None:
    for each in awaited:
        if not each.done():
            each.set_result(None)
