"""Token frames from the workers to this process: one hub, one list in Redis, a stream a request."""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Any, Final

import structlog
from prometheus_client import Counter, Gauge
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.clock import CLOCK
from gpu_workers.protocol.codec import WireFormatError
from gpu_workers.protocol.messages import Resend, Terminal
from gpu_workers.protocol.redis_errors import is_out_of_memory
from inference.background import Background
from inference.streaming.confirmations import Confirmations
from inference.streaming.holders import Holders
from inference.streaming.last_frames import LastFrames
from inference.streaming.token_stream import STALE, TokenStream

_log = structlog.get_logger(__name__)

HEARTBEAT_SECONDS: Final = 1.5
HEARTBEAT_TTL_SECONDS: Final = 6
# Unread frames outlive their gateway by this; workers may not expire them.
UNREAD_TTL_SECONDS: Final = 60
_BLOCK_SECONDS: Final = 2
_DEAD_LINK_SECONDS: Final = 4 * _BLOCK_SECONDS
_BATCHES_PER_READ: Final = 256
_UNREAD_ASK_SECONDS: Final = 60

FRAMES = Counter("penstock_gateway_frames_total", "Frames received from workers.")
OPEN = Gauge("penstock_gateway_open_streams", "Requests whose end has not been seen yet.")


class FrameHub:
    """Every stream of this process, the one reader that feeds them, and the process's heartbeat."""

    def __init__(
        self, redis: Redis, blocking_redis: Redis, *, gateway_id: str | None = None
    ) -> None:
        self.gateway_id = gateway_id or secrets.token_hex(8)
        self._redis = redis
        self._blocking_redis = blocking_redis
        self._streams: dict[str, TokenStream] = {}
        self._holders = Holders(redis)
        self._confirmations = Confirmations(redis, self.gateway_id)
        self._last_frames = LastFrames(redis)
        self._background = Background()

    async def start(self) -> None:
        self._background.supervise(self._beat, name="gateway-heartbeat")
        self._background.supervise(self._read, name="frame-hub")
        self._background.supervise(self._holders.run, name="holders")
        self._background.supervise(self._confirmations.run, name="confirmations")
        self._background.supervise(self._last_frames.run, name="last-frames")

    async def stop(self) -> None:
        """End the reader; the heartbeat goes too, so that workers abort what is left at once."""
        await self._background.stop()
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.delete(keys.gateway_heartbeat(self.gateway_id))
        pipeline.delete(keys.gateway_frames(self.gateway_id))
        pipeline.srem(keys.known_gateways(), self.gateway_id)
        try:
            await pipeline.execute()
            await self._last_frames.flush()
        except (RedisError, OSError) as error:
            _log.warning("gateway_stops_without_redis", reason=repr(error))

    def open(
        self,
        request_id: str,
        on_end: Callable[[Terminal], None],
        on_prompt_counted: Callable[[], None],
        *,
        pool: str,
        on_unfilled: Callable[[], None] = lambda: None,
        keeps_token_ids: bool = False,
    ) -> TokenStream:
        """Open a stream for a request that is about to be enqueued; kept until `close`."""
        stream = TokenStream(
            request_id,
            on_end,
            on_prompt_counted,
            self._gap_in,
            pool=pool,
            on_body_kept=self._body_kept,
            on_unproven=self._holders.ask,
            on_unfilled=on_unfilled,
            keeps_token_ids=keeps_token_ids,
        )
        self._streams[request_id] = stream
        OPEN.set(len(self._streams))
        return stream

    def close(self, request_id: str) -> None:
        stream = self._streams.pop(request_id, None)
        OPEN.set(len(self._streams))
        if stream is not None and stream.has_ended and stream.worker_id is not None:
            self._last_frames.remove(stream.pool, request_id)

    async def read_last_frames(self, stream: TokenStream) -> bool:
        """Give a stream whose end does not come what its worker has left of it in Redis; return
        whether it has ended by that."""
        await self._last_frames.feed(stream)
        return stream.has_ended

    async def request_resend(self, worker_id: str, stream: TokenStream) -> None:
        """Have the worker send the stream's frames again, from the next one on."""
        resend = Resend(
            request_id=stream.request_id,
            attempt=stream.attempt,
            from_seq=stream.next_seq,
            gateway_id=self.gateway_id,
        )
        inbox = keys.pool_inbox(stream.pool, worker_id)
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.rpush(inbox, codec.encode_resend(resend))
        # So that nothing stays behind where the worker is gone.
        pipeline.expire(inbox, _UNREAD_ASK_SECONDS)
        await pipeline.execute()

    def _body_kept(self, stream: TokenStream) -> None:
        self._background.spawn(self._read_body(stream), name="kept-body")

    async def _read_body(self, stream: TokenStream) -> None:
        if not await self.read_last_frames(stream):
            self._gap_in(stream)

    def _gap_in(self, stream: TokenStream) -> None:
        if stream.worker_id is not None:
            resend = self.request_resend(stream.worker_id, stream)
            self._background.spawn(resend, name="resend-request")

    async def _beat(self) -> None:
        while True:
            await self._renew_heartbeat()
            await asyncio.sleep(HEARTBEAT_SECONDS)

    async def _renew_heartbeat(self) -> None:
        """Renew what tells workers that this process lives, and see what time it is. A Redis that
        has no memory left still runs EXPIRE, and refuses SET and SADD."""
        key = keys.gateway_heartbeat(self.gateway_id)
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.expire(key, HEARTBEAT_TTL_SECONDS)
        pipeline.expire(keys.gateway_frames(self.gateway_id), UNREAD_TTL_SECONDS)
        pipeline.time()
        pipeline.sadd(keys.known_gateways(), self.gateway_id)
        asked_ns = time.monotonic_ns()
        answers = await pipeline.execute(raise_on_error=False)
        answered_ns = time.monotonic_ns()
        for answer in answers:
            if isinstance(answer, Exception) and not is_out_of_memory(answer):
                raise answer
        is_known, _, redis_time, _ = answers
        CLOCK.note(redis_time, asked_ns=asked_ns, answered_ns=answered_ns)
        if not is_known:
            await self._redis.set(key, b"1", ex=HEARTBEAT_TTL_SECONDS)

    async def _read(self) -> None:
        frames_key = keys.gateway_frames(self.gateway_id)
        while True:
            # The outer limit notices a connection that died without a word.
            async with asyncio.timeout(_DEAD_LINK_SECONDS):
                popped: Any = await self._blocking_redis.blmpop(
                    _BLOCK_SECONDS, 1, frames_key, direction="LEFT", count=_BATCHES_PER_READ
                )
            if popped:
                for data in popped[1]:
                    self._deliver(data)

    def _deliver(self, data: bytes) -> None:
        try:
            batch = codec.decode_frames(data)
        except WireFormatError as error:
            _log.error("frame_batch_unreadable", reason=str(error)[:200])
            return
        FRAMES.inc(len(batch.frames))
        streams, worker_id, pool = self._streams, batch.worker_id, None
        for frame in batch.frames:
            stream = streams.get(frame.request_id)
            if stream is None:
                STALE.inc()
            else:
                stream.feed(frame, worker_id)
                if stream.worker_id == worker_id:
                    pool = stream.pool
        if batch.number:
            self._confirmations.note(batch, pool)
        for demand in batch.unkept:
            if (stream := streams.get(demand.request_id)) is not None:
                stream.note_unkept(demand, worker_id)
