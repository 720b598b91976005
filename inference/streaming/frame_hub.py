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
from gpu_workers.protocol.messages import MAX_FRAMES_OF_A_BATCH, Resend, Terminal
from gpu_workers.protocol.redis_errors import is_out_of_memory
from inference.background import Background
from inference.pools import tell_trouble
from inference.streaming.confirmations import Confirmations
from inference.streaming.last_frames import LastFrames
from inference.streaming.request_owners import RequestOwners
from inference.streaming.token_stream import STALE, TokenStream

_log = structlog.get_logger(__name__)

HEARTBEAT_SECONDS: Final = 1.5
HEARTBEAT_TTL_SECONDS: Final = 6
# Unread frames outlive their gateway by this; workers may not expire them.
UNREAD_TTL_SECONDS: Final = 60
_BLOCK_SECONDS: Final = 2
_DEAD_LINK_SECONDS: Final = 4 * _BLOCK_SECONDS
# A turn of one pool. Of its frames no more reach the event loop at once than take it so long.
_BATCHES_PER_READ: Final = 256
_TURN_SECONDS: Final = 0.02
# A thousand frames with all that they may hold are less.
MOST_BATCH_BYTES: Final = 64 * 1024 * 1024
_UNREAD_ASK_SECONDS: Final = 60

FRAMES = Counter("penstock_gateway_frames_total", "Frames received from workers.")
UNREADABLE = Counter(
    "penstock_gateway_unreadable_batches_total", "Batches from workers that no gateway can read."
)
OPEN = Gauge("penstock_gateway_open_streams", "Requests whose end has not been seen yet.")


class FrameHub:
    """Every stream of this process, the one reader that feeds them, and the process's heartbeat.

    Workers of each pool write to a list of their own, and the pools have turns: whatever a node
    writes that is not to be believed, the others' frames come as ever.
    """

    def __init__(
        self, redis: Redis, blocking_redis: Redis, *, gateway_id: str | None = None
    ) -> None:
        self.gateway_id = gateway_id or secrets.token_hex(8)
        self._redis = redis
        self._blocking_redis = blocking_redis
        self._streams: dict[str, TokenStream] = {}
        # The lists that are read, each with its pool, in the order of their turns.
        self._lists: dict[bytes, str] = {}
        self._wake_list = keys.gateway_wake(self.gateway_id).encode()
        self._owners = RequestOwners(redis)
        self._confirmations = Confirmations(redis, self.gateway_id)
        self._last_frames = LastFrames(redis)
        self._background = Background()

    async def start(self) -> None:
        self._background.supervise(self._beat, name="gateway-heartbeat")
        self._background.supervise(self._read, name="frame-hub")
        self._background.supervise(self._owners.run, name="request owners")
        self._background.supervise(self._confirmations.run, name="confirmations")
        self._background.supervise(self._last_frames.run, name="last-frames")

    async def stop(self) -> None:
        """End the reader; the heartbeat goes too, so that workers abort what is left at once."""
        await self._background.stop()
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.delete(keys.gateway_heartbeat(self.gateway_id))
        pipeline.delete(self._wake_list, *self._lists)
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
            on_unproven=self._owners.ask,
            on_unfilled=on_unfilled,
            keeps_token_ids=keeps_token_ids,
        )
        self._streams[request_id] = stream
        self._listen_to(pool)
        OPEN.set(len(self._streams))
        return stream

    def _listen_to(self, pool: str) -> None:
        unread = keys.gateway_frames(self.gateway_id, pool).encode()
        if unread not in self._lists:
            self._lists[unread] = pool
            # The reader waits for the others.
            self._background.spawn(self._wake_reader(), name="wake-reader")

    async def _wake_reader(self) -> None:
        await self._redis.rpush(self._wake_list, b"1")

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
        pipeline.time()
        pipeline.sadd(keys.known_gateways(), self.gateway_id)
        for each in (self._wake_list, *self._lists):
            pipeline.expire(each, UNREAD_TTL_SECONDS)
        asked_ns = time.monotonic_ns()
        answers = await pipeline.execute(raise_on_error=False)
        answered_ns = time.monotonic_ns()
        for answer in answers:
            if isinstance(answer, Exception) and not is_out_of_memory(answer):
                raise answer
        is_known, redis_time, *_ = answers
        CLOCK.note(redis_time, asked_ns=asked_ns, answered_ns=answered_ns)
        if not is_known:
            await self._redis.set(key, b"1", ex=HEARTBEAT_TTL_SECONDS)

    async def _read(self) -> None:
        while True:
            lists: Any = (self._wake_list, *self._lists)  # redis-py takes bytes too
            # The outer limit notices a connection that died without a word.
            async with asyncio.timeout(_DEAD_LINK_SECONDS):
                popped: Any = await self._blocking_redis.blmpop(
                    _BLOCK_SECONDS, len(lists), *lists, direction="LEFT", count=_BATCHES_PER_READ
                )
            if popped and popped[0] != self._wake_list:
                await self._take_turn(*popped)

    async def _take_turn(self, unread: bytes, batches: list[bytes]) -> None:
        """Deliver what came of one pool; the others have their turns before its next one."""
        pool = self._lists[unread] = self._lists.pop(unread)
        began = time.monotonic()
        for data in batches:
            try:
                self._deliver(pool, data)
            except Exception as error:  # noqa: BLE001 - whatever a worker wrote ends no other's
                UNREADABLE.inc()
                tell_trouble("frame_batch_unreadable", pool, error)
            if time.monotonic() - began > _TURN_SECONDS:
                await asyncio.sleep(0)
                began = time.monotonic()

    def _deliver(self, pool: str, data: bytes) -> None:
        """Give each stream of the pool its frames. Raises `WireFormatError`."""
        if len(data) > MOST_BATCH_BYTES:
            raise WireFormatError(f"A batch of {len(data):,} bytes.")
        batch = codec.decode_frames(data)
        if len(batch.frames) > MAX_FRAMES_OF_A_BATCH:
            raise WireFormatError(f"A batch of {len(batch.frames):,} frames.")
        FRAMES.inc(len(batch.frames))
        worker_id, is_proven = batch.worker_id, False
        for frame in batch.frames:
            stream = self._stream_of(pool, frame.request_id)
            if stream is None:
                STALE.inc()
            else:
                stream.feed(frame, worker_id)
                is_proven = is_proven or stream.worker_id == worker_id
        if batch.number:
            self._confirmations.note(batch, pool if is_proven else None)
        for demand in batch.unkept:
            if (stream := self._stream_of(pool, demand.request_id)) is not None:
                stream.note_unkept(demand, worker_id)

    def _stream_of(self, pool: str, request_id: str) -> TokenStream | None:
        """Return the stream of a request in the pool: no worker writes to another pool's."""
        stream = self._streams.get(request_id)
        return stream if stream is not None and stream.pool == pool else None
