"""An outbox's calls to Redis. Each is one round trip, and may be repeated."""

from collections.abc import Iterable, Sequence
from typing import Any

from redis.asyncio import Redis

from gpu_workers.finish import Accepted, Refused, Undecided, UnknownRequest, read_finish
from gpu_workers.outbox.outbox import OutboxEntry
from gpu_workers.protocol import functions, keys
from gpu_workers.protocol.calls import FinishMode, finish_arguments
from gpu_workers.protocol.usage import UsageEntry

RECEIPTS_AT_ONCE = 1000


class UsageCalls:
    """The calls of one outbox of one pool. Connection errors go to the caller."""

    def __init__(self, redis: "Redis", *, pool: str, outbox_id: str) -> None:
        self._redis = redis
        self._prefix = keys.pool_prefix(pool)
        self._receipts = keys.pool_receipts(pool, outbox_id)
        self._withheld = keys.pool_usage_withheld(pool)
        self._workers_resynced = keys.pool_workers_resynced(pool)
        self._outbox_id = outbox_id

    async def take_receipts(self) -> list[int]:
        """Take and return the numbers of rows that are in PostgreSQL. If the answer is lost, the
        rows are found missing from the stream and appended again; the consumer skips them as
        duplicates."""
        taken: Any = await self._redis.spop(self._receipts, RECEIPTS_AT_ONCE)
        return [int(seq) for seq in taken or ()]

    async def missing(self, rows: Iterable[tuple[int, str]]) -> list[int]:
        """Return the numbers of those rows, of (number, stream id), that are neither in the stream
        nor have a receipt."""
        arguments = [value for row in rows for value in row]
        answer = await self._fcall(functions.MISSING_USAGE, *arguments)
        return [int(seq) for seq in answer]

    async def append(self, entries: Sequence[OutboxEntry]) -> list[tuple[int, str]]:
        """Append the entries that are still missing; return the number and stream id of each, ""
        of those that the stream has no room for."""
        arguments: list[str | bytes | int] = []
        for entry in entries:
            arguments += [entry.seq, entry.stream_id, entry.field, entry.record]
        ids = await self._fcall(functions.APPEND_USAGE, *arguments)
        return [(entry.seq, each.decode()) for entry, each in zip(entries, ids, strict=True)]

    async def offer(
        self, offers: Sequence[tuple[UsageEntry, str, FinishMode]]
    ) -> list[Accepted | Refused | Undecided | UnknownRequest | Exception]:
        """Offer records to `finish`, each with origin and mode; return the answers in order, errors
        among them."""
        pipeline = self._redis.pipeline(transaction=False)
        for entry, origin, mode in offers:
            arguments = finish_arguments(entry, origin=origin, mode=mode)
            pipeline.fcall(functions.FINISH, 1, self._prefix, *arguments)
        answers = await pipeline.execute(raise_on_error=False)
        return [_read(answer) for answer in answers]

    async def live_gateways(self, gateway_ids: Iterable[str]) -> set[str]:
        """Return those of the gateways that have a heartbeat."""
        asked = list(gateway_ids)
        if not asked:
            return set()
        pipeline = self._redis.pipeline(transaction=False)
        for gateway_id in asked:
            pipeline.exists(keys.gateway_heartbeat(gateway_id))
        answers = await pipeline.execute()
        return {each for each, is_alive in zip(asked, answers, strict=True) if is_alive}

    async def report_complete(self) -> None:
        """Report that the stream has, or had, every settled entry of the outbox."""
        await self._redis.srem(self._withheld, self._outbox_id)

    async def report_resynced(self, worker_name: str) -> None:
        """Report that this Redis has all that the outbox holds."""
        await self._redis.sadd(self._workers_resynced, worker_name)

    async def _fcall(self, function: str, *arguments: str | bytes | int) -> Any:
        return await self._redis.fcall(function, 1, self._prefix, self._outbox_id, *arguments)


def _read(answer: Any) -> Accepted | Refused | Undecided | UnknownRequest | Exception:
    try:
        return read_finish(answer)
    except Exception as error:  # noqa: BLE001 - one record's error keeps no other from its answer
        return error
