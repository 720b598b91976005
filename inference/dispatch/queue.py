"""The queue of each pool, through the functions of dispatch.lua: enqueue, cancel, finish, reap."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from redis.asyncio import Redis

from gpu_workers.protocol import codec, functions, keys
from gpu_workers.protocol.calls import (
    UNBOUNDED_BYTES,
    enqueue_arguments,
    finish_arguments,
    requeue_arguments,
)
from gpu_workers.protocol.clock import now_ms
from gpu_workers.protocol.messages import (
    Envelope,
    Outcome,
    Requeued,
    RetryReason,
    TokenUsage,
    WasteReason,
)
from gpu_workers.protocol.usage import UsageEntry
from inference.dispatch.answers import Enqueued, known_wait, read_enqueued
from inference.lua_constants import WORKER_LEASE_MS
from inference.redis_functions import DISPATCH, FunctionLibrary

# Requests that are found at once.
REAP_LIMIT: Final = 500
GATEWAYS_LIMIT: Final = 1_000
# Longer than anybody waits for it; a gateway that is asked for it later says it again.
_RESYNC_TTL_SECONDS: Final = 600


class RequestState(StrEnum):
    """What the pool knows of a request."""

    QUEUED = "queued"
    RUNNING = "running"
    TERMINAL = "terminal"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True, slots=True)
class QueueForecast:
    """What one more request of a tenant can expect. `position` 0: it need not wait; `wait_ms` None
    where nobody can tell; `waiting`: requests of the same tenant and class."""

    position: int
    wait_ms: int | None
    waiting: int
    queue_length: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Stranded:
    """A request that somebody has to end: its worker is dead, or nobody took it in time."""

    request_id: str
    attempt: int
    state: RequestState
    gateway_id: str
    worker_id: str | None
    envelope: bytes


class Dispatch:
    """The pools' queues. Every method is one round trip unless it says otherwise."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._functions = FunctionLibrary(redis, DISPATCH)

    async def load_functions(self) -> None:
        await self._functions.load()

    async def enqueue(
        self,
        envelope: Envelope,
        *,
        max_queue_length: int,
        max_payload_bytes: int = UNBOUNDED_BYTES,
        attempts: int = 0,
        owed_proof: bytes = b"",
        max_load_ms: int = 0,
    ) -> Enqueued:
        """Hand the request to a free worker at once, else to its pool's queue. Of a queue of
        `max_queue_length`, and of the bytes that the pool may hold, each tenant has its share:
        refused is who already fills it. `attempts`: how many the request had in a Redis that has
        lost it. `owed_proof`: the proof that the envelope gets where the queue judges that the
        service owes it its promises; without one nothing is judged. `max_load_ms`: for how long
        loads of the tenant's adapters may hold engines up in a minute, 0 for any time."""
        answer = await self._functions.call(
            functions.ENQUEUE,
            keys.pool_prefix(envelope.pool),
            *enqueue_arguments(
                envelope,
                max_queue_length=max_queue_length,
                max_payload_bytes=max_payload_bytes,
                attempts=attempts,
                owed_proof=owed_proof,
                max_load_ms=max_load_ms,
            ),
        )
        return read_enqueued(answer)

    async def forecast(self, pool: str, service_class: str, tenant_id: str) -> QueueForecast:
        """Return what one more request of this tenant and class would find."""
        position, wait_ms, waiting, length = await self._functions.call(
            functions.FORECAST, keys.pool_prefix(pool), service_class, tenant_id
        )
        return QueueForecast(
            position=position, wait_ms=known_wait(wait_ms), waiting=waiting, queue_length=length
        )

    async def requeue(
        self,
        pool: str,
        request_id: str,
        attempt: int,
        envelope: Envelope | None = None,
        *,
        reason: RetryReason = "worker_lost",
    ) -> Requeued:
        """Give the request to another attempt, with this envelope if one is given. A worker that
        still holds it is told to stop."""
        answer = await self._functions.call(
            functions.REQUEUE,
            keys.pool_prefix(pool),
            *requeue_arguments(request_id, attempt, reason, envelope),
        )
        return Requeued(answer[0].decode())

    async def epoch(self, pool: str, candidate: str) -> str:
        """Return what tells this Redis from one that has lost everything since."""
        answer = await self._functions.call(functions.EPOCH, keys.pool_prefix(pool), candidate)
        return str(answer.decode())

    async def has_resynced(self, gateway_id: str) -> bool:
        """Return whether `note_resynced` was called in this Redis, since it lost everything."""
        return bool(await self._redis.sismember(keys.gateways_resynced(), gateway_id))

    async def note_resynced(self, gateway_id: str) -> None:
        """Note that the gateway has reserved its open requests again and put on record what it
        ended: as far as it is concerned, others may be admitted."""
        pipeline = self._redis.pipeline(transaction=False)
        pipeline.sadd(keys.gateways_resynced(), gateway_id)
        pipeline.expire(keys.gateways_resynced(), _RESYNC_TTL_SECONDS)
        await pipeline.execute()

    async def cancel(self, pool: str, request_id: str) -> RequestState:
        """Ask the worker to abort a running request; take a queued one out of the queue, which its
        caller then has to `finish`."""
        answer = await self._functions.call(functions.CANCEL, keys.pool_prefix(pool), request_id)
        return RequestState(answer.decode())

    async def finish(
        self, entry: UsageEntry, *, is_dead_letter: bool = False, may_be_lost: bool = False
    ) -> bool:
        """Record the end of a request, once: the one point of truth. False: another attempt, or
        somebody else, has ended it, or Redis has lost the request; one that `may_be_lost` is put on
        record then. A dead letter is kept for operators, with its payload."""
        answer = await self._functions.call(
            functions.FINISH,
            keys.pool_prefix(entry.pool),
            *finish_arguments(
                entry, is_dead_letter=is_dead_letter, mode="lost" if may_be_lost else ""
            ),
        )
        return bool(answer[0] == 1)

    async def record_of(self, pool: str, request_id: str) -> UsageEntry | None:
        """Return how a request ended, as long as its pool remembers it."""
        record = await self._redis.hget(keys.pool_request(pool, request_id), "record")
        return codec.decode_usage_entry(record) if isinstance(record, bytes) else None

    async def reap(
        self,
        pool: str,
        *,
        lease_ms: int = WORKER_LEASE_MS,
        grace_ms: int = 0,
        limit: int = REAP_LIMIT,
        gateway_id: str,
    ) -> list[Stranded]:
        """Return those of a gateway's requests that it has to end, or to have tried again, at most
        `limit`. For that gateway alone: it shows that it is there."""
        arguments = (lease_ms, grace_ms, limit, gateway_id)
        return _stranded(
            await self._functions.call(functions.REAP, keys.pool_prefix(pool), *arguments)
        )

    async def reap_gone(
        self,
        pool: str,
        gateway_id: str,
        *,
        lease_ms: int = WORKER_LEASE_MS,
        limit: int = REAP_LIMIT,
    ) -> list[Stranded]:
        """Return what a gateway without a heartbeat has left behind that no worker will end: all
        that waits, at most `limit`. Nothing unless it was missed some seconds ago and has been
        silent since."""
        arguments = (lease_ms, limit, gateway_id)
        return _stranded(
            await self._functions.call(functions.REAP_GONE, keys.pool_prefix(pool), *arguments)
        )

    async def gateways(self, pool: str) -> list[str]:
        """Return the ids of the gateways that the pool knows, those that are gone too; at most
        `GATEWAYS_LIMIT`, as its workers may write anything there."""
        members = await self._redis.zrange(keys.pool_gateways(pool), 0, GATEWAYS_LIMIT - 1)
        return [member.decode() for member in members if isinstance(member, bytes)]

    async def end_unread(self, stranded: Stranded, *, queued_code: str = "queue_timeout") -> bool:
        """Finish a request whose output nobody reads, one that was queued with `queued_code`. What
        was delivered is unknown by now: nothing is billed."""
        was_queued = stranded.state is RequestState.QUEUED
        envelope = codec.decode_envelope(stranded.envelope)
        return await self.finish(
            usage_entry(
                envelope,
                attempt=stranded.attempt,
                outcome=Outcome.EXPIRED if was_queued else Outcome.FAILED,
                error_code=queued_code if was_queued else "worker_lost",
                worker_id=stranded.worker_id,
                resumed=len(envelope.resumed_token_ids),
            )
        )

    async def resumed_of(self, pool: str, request_id: str) -> int:
        """Return how many tokens the next attempt would go on from, or the current one went on
        from."""
        resumed = await self._redis.hget(keys.pool_request(pool, request_id), "resumed")
        return int(resumed or 0)

    async def states(self, pool: str, request_ids: list[str]) -> dict[str, RequestState]:
        """Return what the pool knows of each of these requests."""
        pipeline = self._redis.pipeline(transaction=False)
        for request_id in request_ids:
            pipeline.hget(keys.pool_request(pool, request_id), "state")
        return {
            request_id: _STATES.get(state, RequestState.UNKNOWN)
            for request_id, state in zip(request_ids, await pipeline.execute(), strict=True)
        }

    async def worker_of(self, pool: str, request_id: str) -> str | None:
        """Return the worker that had the request last, also after its end; None if none had it."""
        worker_id = await self._redis.hget(keys.pool_request(pool, request_id), "worker")
        return worker_id.decode() if isinstance(worker_id, bytes) and worker_id else None


_STATES: Final[dict[bytes | None, RequestState]] = {
    b"queued": RequestState.QUEUED,
    b"running": RequestState.RUNNING,
    b"finished": RequestState.TERMINAL,
}


def usage_entry(
    envelope: Envelope,
    *,
    attempt: int,
    outcome: Outcome,
    error_code: str | None,
    worker_id: str | None = None,
    usage: TokenUsage | None = None,
    ttft_ms: int | None = None,
    resumed: int = 0,
) -> UsageEntry:
    """Return the terminal record of a request that no worker finished. What `resumed` tokens were
    to be gone on from, and are not billed, is waste."""
    usage = usage or TokenUsage()
    wasted = max(0, resumed - usage.completion_tokens)
    return UsageEntry(
        request_id=envelope.request_id,
        tenant_id=envelope.tenant_id,
        project_id=envelope.project_id,
        api_key_id=envelope.api_key_id,
        tier=envelope.tier,
        pool=envelope.pool,
        model=envelope.model,
        api=envelope.api,
        stream=envelope.stream,
        attempt=attempt,
        worker_id=worker_id,
        outcome=outcome,
        finish_reason=None,
        error_code=error_code,
        usage=usage,
        arrived_at_ms=envelope.arrived_at_ms,
        finished_at_ms=max(now_ms(), envelope.arrived_at_ms),
        queue_ms=None,
        ttft_ms=ttft_ms,
        is_billed=envelope.is_billed,
        service_class=envelope.service_class,
        adapter=envelope.adapter_name,
        prices=envelope.prices,
        wasted_tokens=wasted,
        waste_reason=WasteReason.NOT_RESUMED if wasted else "",
        generated_tokens=0,
        adapter_version=envelope.adapter_version,
        labels=envelope.labels,
        prompt_bound=envelope.prompt_bound,
        output_bound=envelope.output_bound,
        owed=envelope.owed,
        proof=envelope.proof,
    )


def _stranded(rows: list[Any]) -> list[Stranded]:
    return [
        Stranded(
            request_id=request_id.decode(),
            attempt=attempt,
            state=RequestState(state.decode()),
            gateway_id=gateway.decode(),
            worker_id=worker.decode() or None,
            envelope=envelope,
        )
        for request_id, attempt, state, gateway, worker, envelope in rows
    ]
