"""Frames on their way to gateways: one write per engine step and gateway, never one per stream.

The first frame after a flush schedules the next flush behind the tasks that the same engine step
woke, so a step's deltas leave together. While a write is under way frames gather for the next
one: the slower Redis is, the larger the batches. While the worker itself is what is slow, a write
waits for the `Pace`, unless a stream begins or ends with it. What was sent of late is kept, and
resent when a gateway misses it; what no gateway has confirmed goes with the request's `finish` too.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog
from msgspec import structs
from redis.asyncio import Redis

from gpu_workers.cancellation import cancel_and_wait
from gpu_workers.frames.outgoing import Outgoing
from gpu_workers.frames.pace import Pace
from gpu_workers.frames.ring import FrameRing
from gpu_workers.frames.unread import UnreadBytes
from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Confirmation, Frame, FrameBatch, Resend, Terminal
from gpu_workers.protocol.redis_errors import is_transient

# For a gateway while Redis is away: a minute of 200 streams at 30 tokens a second, 500 bytes each.
MAX_WAITING_FRAMES: Final = 400_000
# The body of an answer that is larger is written once, with the last frames.
MAX_BODY_BYTES: Final = 64 * 1024
# The role, which holds no token, and the first token: nobody waits for those.
FIRST_FRAMES: Final = 2
KEPT_AFTER_END_SECONDS: Final = 10.0
RETRY_SECONDS: Final = 0.2
# Later than that, and the process itself was paused meanwhile.
_LATE_SECONDS: Final = 1.0

_log = structlog.get_logger("gpu_workers.frames.writer")


class FrameWriter:
    """`on_gateway_lost` is called with the id of a gateway that has stopped reading; `on_flush`
    with the number of frames of each write."""

    def __init__(
        self,
        redis: "Redis",
        *,
        pool: str,
        worker_id: str,
        on_gateway_lost: Callable[[str], None],
        on_flush: Callable[[int], None] = lambda frames: None,
        pace: Pace | None = None,
    ) -> None:
        self._redis = redis
        self._pool = pool
        self._worker_id = worker_id
        self._on_gateway_lost = on_gateway_lost
        self._on_flush = on_flush
        self._ring = FrameRing()
        self._unread = UnreadBytes(redis, pool)
        self._outgoing: dict[str, Outgoing] = {}
        self._batches = 0  # written so far, to any gateway
        self._loop = asyncio.get_running_loop()
        self._pace = pace or Pace(self._loop.time())

    def append(self, gateway_id: str, frame: Frame) -> None:
        """Queue a frame; frames of one request arrive in the order they were appended."""
        outgoing = self._outgoing.get(gateway_id) or self._begin(gateway_id)
        self._ring.keep(outgoing, frame)
        self._queue(outgoing, frame, is_urgent=frame.seq < FIRST_FRAMES)

    def append_end(self, gateway_id: str, terminal: Terminal, *, is_kept: bool) -> None:
        """Queue the last frame of an attempt; of a large one that `is_kept` in Redis, all but its
        body, which is there."""
        outgoing = self._outgoing.get(gateway_id) or self._begin(gateway_id)
        self._ring.keep(outgoing, terminal)
        if is_kept and len(terminal.body or b"") > MAX_BODY_BYTES:
            terminal = structs.replace(terminal, body=None, is_body_kept=True)
        self._queue(outgoing, terminal, is_urgent=True)

    def end(self, request_id: str, attempt: int) -> None:
        """Note that nothing more is appended for this attempt: its frames are kept for
        `KEPT_AFTER_END_SECONDS` in which this process has run."""
        due = self._loop.time() + KEPT_AFTER_END_SECONDS
        self._loop.call_at(due, self._forget, request_id, attempt, due)

    def last_frames(self, gateway_id: str, terminal: Terminal) -> bytes:
        """Return, encoded, what the gateway has not confirmed of an attempt, and its end."""
        frames = self._ring.unconfirmed(terminal.request_id, terminal.attempt)
        return codec.encode(FrameBatch(worker_id=self._worker_id, frames=[*frames, terminal]))

    def confirm(self, confirmation: Confirmation) -> None:
        """Note what a gateway says it has."""
        outgoing = self._outgoing.get(confirmation.gateway_id)
        if outgoing is not None:
            number = min(confirmation.number, outgoing.last_taken)
            outgoing.confirmed = max(outgoing.confirmed, number)

    def resend(self, resend: Resend, *, is_open: bool) -> None:
        """Resend the frames that a gateway missed; tell it if they are kept no longer, and no
        more will follow as the attempt is not open."""
        found = self._ring.resend(resend.request_id, resend.attempt, resend.from_seq)
        outgoing, frames = found or (None, [])
        if outgoing is not None:
            for frame in frames:
                self._queue(outgoing, frame, is_urgent=True)
        is_evicted = found is None and self._ring.has_any(resend.request_id, resend.attempt)
        if resend.gateway_id and (is_evicted or not (is_open or frames)):
            outgoing = self._outgoing.get(resend.gateway_id) or self._begin(resend.gateway_id)
            outgoing.unkept.append(resend)
            outgoing.is_urgent = True
            self._schedule(outgoing)
        _log.info(
            "frames_resent",
            request_id=resend.request_id,
            from_seq=resend.from_seq,
            frames=len(frames),
        )

    async def drain(self, timeout_seconds: float) -> None:
        """Wait until everything appended so far has been written, or give up."""
        async with asyncio.timeout(timeout_seconds):
            while any(each.has_any or each.write for each in self._outgoing.values()):
                if writes := self._writes():
                    await asyncio.wait(writes)
                else:
                    await asyncio.sleep(0)

    async def wait_written(self, gateway_id: str) -> None:
        """Wait until all that was appended for a gateway is in Redis, or the gateway is lost."""
        outgoing = self._outgoing.get(gateway_id)
        if outgoing is not None and (outgoing.has_any or outgoing.write):
            written = self._loop.create_future()
            outgoing.awaited.append(written)
            await written

    def drop(self, gateway_id: str) -> None:
        """Discard the frames queued for a gateway that is gone."""
        outgoing = self._outgoing.get(gateway_id)
        if outgoing is not None:
            outgoing.clear()
            outgoing.wake()

    async def close(self) -> None:
        await cancel_and_wait(self._writes())

    def _begin(self, gateway_id: str) -> Outgoing:
        # A number that was given out to this gateway before is never given out again.
        outgoing = self._outgoing[gateway_id] = Outgoing(gateway_id, after=self._batches)
        return outgoing

    def _queue(self, outgoing: Outgoing, frame: Frame, *, is_urgent: bool) -> None:
        outgoing.append(frame)
        if is_urgent and not outgoing.is_urgent:
            outgoing.is_urgent = True
            self._schedule(outgoing)
        elif len(outgoing.frames) <= 1:
            self._schedule(outgoing)

    def _schedule(self, outgoing: Outgoing) -> None:
        """Have what gathers written: behind all that the loop has to do now, or when the pace says.
        A write that is under way does it itself, at its end."""
        if outgoing.write is not None:
            return
        due = None
        if not (outgoing.is_urgent or outgoing.full):
            due = self._pace.due(outgoing.written_at, self._loop.time())
        if due is None:
            self._loop.call_soon(self._start_write, outgoing)
        else:
            self._loop.call_at(due, self._start_write, outgoing)

    def _start_write(self, outgoing: Outgoing) -> None:
        if outgoing.has_any and outgoing.write is None:
            name = f"frames:{outgoing.gateway_id}"
            outgoing.write = self._loop.create_task(self._write(outgoing), name=name)

    def _writes(self) -> "list[asyncio.Task[None]]":
        return [each.write for each in self._outgoing.values() if each.write is not None]

    async def _write(self, outgoing: Outgoing) -> None:
        try:
            self._batches += 1
            outgoing.written_at = self._loop.time()
            batch = outgoing.take(self._worker_id)
            awaited: list[asyncio.Future[None]] = []
            if not outgoing.has_any:  # else what they wait for may be in a later one
                awaited, outgoing.awaited = outgoing.awaited, awaited
            await self._push(outgoing, batch)
            outgoing.wake(awaited)
        finally:
            outgoing.write = None
            if outgoing.has_any:
                self._schedule(outgoing)
            else:
                outgoing.wake()
                self._prune(outgoing)

    async def _push(self, outgoing: Outgoing, batch: FrameBatch) -> None:
        self._on_flush(len(batch.frames))
        key, encoded = keys.gateway_frames(outgoing.gateway_id, self._pool), codec.encode(batch)
        while True:
            try:
                batches: int = await self._redis.rpush(key, encoded)
                break
            except Exception as error:  # noqa: BLE001 - whatever it is, no other gateway's frames
                if not is_transient(error):
                    self._lose(outgoing.gateway_id, str(error))
                    return
                if outgoing.waiting_frames > MAX_WAITING_FRAMES:
                    self._lose(outgoing.gateway_id, "Redis does not take its frames")
                    return
                await asyncio.sleep(RETRY_SECONDS)
        outgoing.written = batch.number
        if await self._unread.is_too_much(outgoing.gateway_id, batches):
            self._lose(outgoing.gateway_id, "it has stopped reading")

    def _lose(self, gateway_id: str, reason: str) -> None:
        _log.warning("gateway_lost", gateway_id=gateway_id, reason=reason)
        self.drop(gateway_id)
        self._on_gateway_lost(gateway_id)

    def _forget(self, request_id: str, attempt: int, due: float) -> None:
        """Drop an ended attempt's frames; a process that was paused gives its gateway the time that
        it took from it."""
        if self._loop.time() > due + _LATE_SECONDS:
            self.end(request_id, attempt)
            return
        outgoing = self._ring.forget(request_id, attempt)
        if outgoing is not None:
            self._prune(outgoing)

    def _prune(self, outgoing: Outgoing) -> None:
        if outgoing.is_idle:
            self._outgoing.pop(outgoing.gateway_id, None)
