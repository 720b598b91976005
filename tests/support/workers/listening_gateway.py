"""A gateway for tests: enqueues requests over the real dispatch functions and gathers frames."""

from typing import cast

from redis.asyncio import Redis

from gpu_workers.protocol import codec, functions, keys
from gpu_workers.protocol.calls import enqueue_arguments
from gpu_workers.protocol.messages import (
    Confirmation,
    Delta,
    Envelope,
    Frame,
    Resend,
    Terminal,
    TextDelta,
)
from gpu_workers.protocol.usage import UsageEntry
from tests.support.polling import eventually


class FakeGateway:
    """Keeps a heartbeat until `vanish` and sorts the frames it gets by request."""

    def __init__(self, redis: Redis, gateway_id: str = "gateway-1", pool: str = "sim") -> None:
        self.gateway_id = gateway_id
        self._redis = redis
        self._pool = pool
        self.batches: list[int] = []
        self.numbers: list[int] = []
        self.unkept: list[Resend] = []
        self.deltas: dict[str, list[Delta]] = {}
        self.texts: dict[str, list[TextDelta]] = {}
        self.terminals: dict[str, Terminal] = {}

    async def appear(self) -> None:
        await self._redis.set(keys.gateway_heartbeat(self.gateway_id), b"1", ex=600)

    async def vanish(self) -> None:
        await self._redis.delete(keys.gateway_heartbeat(self.gateway_id))

    async def send(self, envelope: Envelope) -> str:
        await self._redis.fcall(
            functions.ENQUEUE,
            1,
            keys.pool_prefix(self._pool),
            *enqueue_arguments(envelope, max_queue_length=1000),
        )
        return envelope.request_id

    async def cancel(self, request_id: str) -> bytes:
        answer: bytes = await self._redis.fcall(
            functions.CANCEL, 1, keys.pool_prefix(self._pool), request_id
        )
        return answer

    async def ask_again(self, worker_id: str, resend: Resend) -> None:
        inbox = keys.pool_inbox(self._pool, worker_id)
        await self._redis.rpush(inbox, codec.encode_resend(resend))

    async def confirm(self, worker_id: str, number: int) -> None:
        message = Confirmation(gateway_id=self.gateway_id, number=number)
        inbox = keys.pool_inbox(self._pool, worker_id)
        await self._redis.rpush(inbox, codec.encode_confirmation(message))

    async def last_frames(self, request_id: str) -> list[Frame]:
        """What is kept with the finished request; nothing is no frames."""
        key = keys.pool_last_frames(self._pool, request_id)
        kept = cast("bytes | None", await self._redis.get(key))
        return [] if kept is None else codec.decode_frames(kept).frames

    async def read(self) -> None:
        """Take in all frames that have arrived."""
        key = keys.gateway_frames(self.gateway_id, self._pool)
        while data := cast("bytes | None", await self._redis.lpop(key)):
            batch = codec.decode_frames(data)
            self.batches.append(len(batch.frames))
            self.numbers.append(batch.number)
            self.unkept += batch.unkept
            for frame in batch.frames:
                if isinstance(frame, Terminal):
                    self.terminals[frame.request_id] = frame
                elif isinstance(frame, TextDelta):
                    self.texts.setdefault(frame.request_id, []).append(frame)
                else:
                    self.deltas.setdefault(frame.request_id, []).append(frame)

    async def delta_of(self, request_id: str) -> Delta:
        async def arrived() -> bool:
            await self.read()
            return request_id in self.deltas

        await eventually(arrived, timeout_seconds=10)
        return self.deltas[request_id][-1]

    async def terminal_of(self, request_id: str, seconds: float = 10) -> Terminal:
        async def arrived() -> bool:
            await self.read()
            return request_id in self.terminals

        await eventually(arrived, timeout_seconds=seconds)
        return self.terminals[request_id]

    async def usage_entries(self) -> list[UsageEntry]:
        records = cast(
            "list[tuple[bytes, dict[bytes, bytes]]]",
            await self._redis.xrange(keys.pool_usage(self._pool)),
        )
        return [
            codec.decode_usage_entry(fields[b"record"])
            for _, fields in records
            if b"record" in fields
        ]
