"""The usage stream of the pool `sim` as its consumer sees it, and what a test puts in its way."""

from typing import Any, TypeVar, cast

from redis.asyncio import Redis

from gpu_workers.engine import Result
from gpu_workers.protocol import codec, functions, keys, stream_fields
from gpu_workers.protocol.messages import Outcome, TokenUsage
from gpu_workers.protocol.usage import EngineTokenCounter, UsageEntry, WasteEntry
from gpu_workers.requests.open_request import OpenRequest
from tests.support.workers.envelopes import make_envelope

_T = TypeVar("_T")
Rows = list[tuple[bytes, dict[bytes, bytes]]]


async def rows_of_stream(redis: Redis, pool: str = "sim") -> Rows:
    return cast(Rows, await redis.xrange(keys.pool_usage(pool)))


async def records(redis: Redis) -> list[UsageEntry]:
    return await _entries(redis, stream_fields.USAGE_FIELD, UsageEntry)


async def wastes(redis: Redis) -> list[WasteEntry]:
    return await _entries(redis, stream_fields.WASTE_FIELD, WasteEntry)


async def engine_counters(redis: Redis) -> list[EngineTokenCounter]:
    return await _entries(redis, stream_fields.ENGINE_COUNTER_FIELD, EngineTokenCounter)


async def acknowledge(redis: Redis) -> int:
    """As the collector does after its commit."""
    arguments: list[Any] = ["nobody", 600]
    for stream_id, fields in await rows_of_stream(redis):
        arguments += [stream_id, fields.get(stream_fields.OUTBOX_FIELD.encode(), b"")]
    call = redis.fcall(functions.ACKNOWLEDGE_USAGE, 1, keys.pool_prefix("sim"), *arguments)
    return int(await call)


async def requeue(redis: Redis, request_id: str, *, resumed: int) -> None:
    """As a gateway does for which the worker is dead."""
    envelope = make_envelope(request_id=request_id, resumed_token_ids=range(resumed))
    arguments = (request_id, 1, "worker_lost", codec.encode(envelope), resumed)
    answer = await redis.fcall(functions.REQUEUE, 1, keys.pool_prefix("sim"), *arguments)
    assert answer[0] == b"requeued"


def a_record(request_id: str, *, completion_tokens: int) -> UsageEntry:
    """The record of a first attempt that completed."""
    open_request = OpenRequest(envelope=make_envelope(request_id=request_id), attempt=1)
    usage = TokenUsage(prompt_tokens=3, completion_tokens=completion_tokens)
    return open_request.usage_entry(Result(outcome=Outcome.COMPLETED, usage=usage), "w#0")


async def _entries(redis: Redis, field: str, expected: type[_T]) -> list[_T]:
    rows = await rows_of_stream(redis)
    entries = [
        codec.decode_usage(data) for _, fields in rows if (data := fields.get(field.encode()))
    ]
    assert all(isinstance(entry, expected) for entry in entries)
    return cast(list[_T], entries)
