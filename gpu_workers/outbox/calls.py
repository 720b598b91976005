"""What a worker's outbox says to Redis. Each call is one round trip, and may be repeated."""

from collections.abc import Iterable, Sequence
from typing import Any

from redis.asyncio import Redis

from gpu_workers.outbox.outbox import OutboxEntry
from gpu_workers.protocol import keys
from gpu_workers.protocol.calls import FinishMode, finish_arguments
from gpu_workers.protocol.messages import UsageEntry
from gpu_workers.transport import Accepted, Refused, Undecided, UnknownRequest, read_finish

RECEIPTS_AT_ONCE = 1000


class UsageCalls:
    """Of one outbox of one pool. Errors of a Redis that is away are the caller's."""

    def __init__(self, redis: "Redis", *, pool: str, outbox_id: str) -> None:
        self._redis = redis
        self._prefix = keys.pool_prefix(pool)
        self._receipts = keys.pool_receipts(pool, outbox_id)
        self._resent = keys.pool_workers_resynced(pool)
        self._outbox_id = outbox_id

    async def take_receipts(self) -> list[int]:
        """Numbers of rows that are in PostgreSQL. Those whose answer is lost come again: their rows
        are found in no stream, are appended, and known to the consumer already."""
        taken: Any = await self._redis.spop(self._receipts, RECEIPTS_AT_ONCE)
        return [int(seq) for seq in taken or ()]

    async def missing(self, rows: Iterable[tuple[int, str]]) -> list[int]:
        """Those of these rows, by number and stream id, that are neither in the stream nor have a
        receipt."""
        arguments = [value for row in rows for value in row]
        answer = await self._fcall(keys.FUNCTION_MISSING_USAGE, *arguments)
        return [int(seq) for seq in answer]

    async def append(self, entries: Sequence[OutboxEntry]) -> list[tuple[int, str]]:
        """Appends those that are missing by now; answers where each is."""
        arguments: list[str | bytes | int] = []
        for entry in entries:
            arguments += [entry.seq, entry.stream_id, entry.field, entry.record]
        ids = await self._fcall(keys.FUNCTION_APPEND_USAGE, *arguments)
        return [(entry.seq, each.decode()) for entry, each in zip(entries, ids, strict=True)]

    async def offer(
        self, offers: Sequence[tuple[UsageEntry, str, FinishMode]]
    ) -> list[Accepted | Refused | Undecided | UnknownRequest]:
        """What `finish` says of each: a record, its origin, and the mode to ask in."""
        pipeline = self._redis.pipeline(transaction=False)
        for entry, origin, mode in offers:
            arguments = finish_arguments(entry, origin=origin, mode=mode)
            pipeline.fcall(keys.FUNCTION_FINISH, 1, self._prefix, *arguments)
        answers = await pipeline.execute(raise_on_error=False)
        return [_read(answer) for answer in answers]

    async def live_gateways(self, gateway_ids: Iterable[str]) -> set[str]:
        """Those whose heartbeat is there."""
        asked = list(gateway_ids)
        if not asked:
            return set()
        pipeline = self._redis.pipeline(transaction=False)
        for gateway_id in asked:
            pipeline.exists(keys.gateway_heartbeat(gateway_id))
        answers = await pipeline.execute()
        return {each for each, is_alive in zip(asked, answers, strict=True) if is_alive}

    async def say_resent(self, worker_name: str) -> None:
        """This Redis has been told all that the outbox holds."""
        await self._redis.sadd(self._resent, worker_name)

    async def _fcall(self, function: str, *arguments: str | bytes | int) -> Any:
        return await self._redis.fcall(function, 1, self._prefix, self._outbox_id, *arguments)


def _read(answer: Any) -> Accepted | Refused | Undecided | UnknownRequest:
    try:
        return read_finish(answer)
    except UnknownRequest as unknown:
        return unknown
