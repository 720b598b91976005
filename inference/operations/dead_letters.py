"""Requests that every worker died with: looked at, run once more, or thrown away by operators.

They stay in the dispatch Redis for a day, with their payload, which nothing here shows. Run once
more, a request is neither billed nor on record: its caller was told long ago that it failed.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import structs
from redis import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.clock import now_ms
from gpu_workers.protocol.messages import Envelope, Outcome, Requeued, Terminal
from gpu_workers.protocol.redis_url import connect_async
from gpu_workers.protocol.request_id import new_request_id
from gpu_workers.protocol.usage import UsageEntry
from inference.dispatch.answers import Assigned, Queued
from inference.dispatch.queue import Dispatch, RequestState, Stranded, usage_entry
from inference.errors import Unavailable
from inference.lua_constants import DEAD_LETTER_MS
from inference.models.dead_letter import DeadLetterFacts
from inference.pools import alone, known_pools
from inference.proofs import Prover
from inference.streaming.frame_hub import FrameHub

_WATCH_SECONDS: Final = 0.5
_MAX_QUEUE_LENGTH: Final = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Letter:
    """One such request. `entry_id` is its place in the stream of its pool."""

    pool: str
    entry_id: str
    envelope: Envelope
    record: UsageEntry

    @property
    def request_id(self) -> str:
        return self.record.request_id

    @property
    def died_at(self) -> datetime:
        return datetime.fromtimestamp(self.record.finished_at_ms / 1000, UTC)

    def facts(self) -> DeadLetterFacts:
        """Return what operators may see of it."""
        record = self.record
        return DeadLetterFacts(
            request_id=record.request_id,
            pool=self.pool,
            model=record.model,
            api=record.api.value,
            attempts=record.attempt,
            last_worker_id=record.worker_id or "",
            died_at=self.died_at,
        )


def kept_letters(redis: Redis) -> list[Letter]:
    """Return those of every pool, the latest first."""
    found: list[Letter] = []
    for pool in known_pools(redis):
        with alone(pool):
            found += _of_pool(redis, pool)
    return sorted(found, key=lambda letter: letter.died_at, reverse=True)


def forget_old(redis: Redis) -> None:
    """Delete those that are older than a day, of every pool, as the next one would."""
    seconds, _ = redis.time()
    oldest = seconds * 1000 - DEAD_LETTER_MS
    for pool in known_pools(redis):
        with alone(pool):
            redis.xtrim(keys.pool_dead_letters(pool), minid=str(oldest), approximate=False)


def letter_of(redis: Redis, request_id: str) -> Letter | None:
    """Return the dead letter of one request, or None."""
    found = (letter for letter in kept_letters(redis) if letter.request_id == request_id)
    return next(found, None)


def discard(redis: Redis, letter: Letter) -> bool:
    """Delete it with its payload; False if somebody has before."""
    return bool(redis.xdel(keys.pool_dead_letters(letter.pool), letter.entry_id))


async def run_again(redis_url: str, letter: Letter, prover: Prover) -> Terminal:
    """Run the request once more and return how that ended. Raises `Unavailable` if its pool's
    queue is full."""
    async with (
        connect_async(redis_url, socket_timeout=10) as redis,
        connect_async(redis_url, socket_timeout=None) as blocking_redis,
    ):
        hub = FrameHub(redis, blocking_redis)
        await hub.start()
        try:
            return await _run(Dispatch(redis), hub, letter, prover)
        finally:
            await hub.stop()


async def _run(dispatch: Dispatch, hub: FrameHub, letter: Letter, prover: Prover) -> Terminal:
    envelope = structs.replace(
        letter.envelope,
        request_id=new_request_id(),
        gateway_id=hub.gateway_id,
        arrived_at_ms=now_ms(),
        on_saturation="wait",
        resumed_token_ids=[],
        is_billed=False,
        reads_last_frames=True,
        reads_texts=True,
        owed=False,
    )
    envelope = structs.replace(envelope, proof=prover.prove(envelope, owed=False))
    end: asyncio.Future[Terminal] = asyncio.get_running_loop().create_future()
    stream = hub.open(envelope.request_id, end.set_result, lambda: None, pool=envelope.pool)
    answer = await dispatch.enqueue(envelope, max_queue_length=_MAX_QUEUE_LENGTH)
    if not isinstance(answer, Assigned | Queued):
        raise Unavailable(f"The queue of the pool {envelope.pool} is full; try again later.")
    try:
        while not end.done():
            await asyncio.wait([end], timeout=_WATCH_SECONDS)
            if not end.done():
                await hub.read_last_frames(stream)
            for stranded in await dispatch.reap(
                envelope.pool, grace_ms=0, gateway_id=hub.gateway_id
            ):
                if (terminal := await _end(dispatch, envelope, stranded)) and not end.done():
                    end.set_result(terminal)
        return end.result()
    finally:
        hub.close(envelope.request_id)


async def _end(dispatch: Dispatch, envelope: Envelope, stranded: Stranded) -> Terminal | None:
    """Return what no worker will end: held by a dead one, or taken by none in time."""
    outcome, code = Outcome.EXPIRED, "queue_timeout"
    if stranded.state is RequestState.RUNNING:
        answer = await dispatch.requeue(envelope.pool, envelope.request_id, stranded.attempt)
        if answer is not Requeued.EXHAUSTED:
            return None
        outcome, code = Outcome.FAILED, "attempts_exhausted"
    attempt = stranded.attempt if outcome is Outcome.FAILED else 0
    entry = usage_entry(envelope, attempt=attempt, outcome=outcome, error_code=code)
    if not await dispatch.finish(entry):
        return None
    error = Unavailable("No worker could run the request.", code=code).to_wire()
    return Terminal(
        request_id=envelope.request_id,
        attempt=attempt,
        seq=0,
        outcome=outcome,
        usage=entry.usage,
        error=error,
    )


def _of_pool(redis: Redis, pool: str) -> list[Letter]:
    rows: Any = redis.xrange(keys.pool_dead_letters(pool))
    return [
        Letter(
            pool=pool,
            entry_id=entry_id.decode(),
            envelope=codec.decode_envelope(fields[b"envelope"]),
            record=codec.decode_usage_entry(fields[b"record"]),
        )
        for entry_id, fields in rows
    ]
