"""One pool driven by the real dispatch functions in virtual time: no sleeping, no clock.

Synchronous, since nothing runs beside it: the state machine and the fairness benchmark use it too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from redis import Redis

from gpu_workers.protocol import functions, keys
from gpu_workers.protocol.adapters import AdapterLevel
from gpu_workers.protocol.calls import UNBOUNDED_BYTES, EnqueueOrder
from inference.lua_constants import WORKER_LEASE_MS
from inference.redis_functions import DISPATCH, library_text

START_MS = 1_760_000_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """A request as the scheduler sees it; `seconds` until its deadline and its withdrawal,
    `payload` in bytes; how its envelope ends if it is owed its promises, empty: not judged;
    `load_ms`: of its tenant's loads in a minute, 0: any."""

    request_id: str
    tenant: str
    project: str = "web"
    key: str = "key"
    weight: int = 1
    service_class: str = "interactive"
    prompt: int = 100
    output: int = 100
    seconds: float = 600
    gateway: str = "gateway"
    on_saturation: str = "wait"
    is_resumable: bool = False
    adapter: str = ""
    attempts: int = 0
    resumed: int = 0
    sequences: int = 1
    payload: int = 8
    owed_end: bytes = b""
    load_ms: int = 0


@dataclass(frozen=True, slots=True)
class Started:
    """An attempt that a worker was handed."""

    request_id: str
    attempt: int


class VirtualPool:
    """The pool `virtual` of an empty Redis. `now_ms` is what the functions take for the time,
    `library` the text of other functions than ours."""

    def __init__(
        self, redis: "Redis", name: str = "virtual", *, library: str | None = None
    ) -> None:
        self.redis = redis
        self.name = name
        self.now_ms = START_MS
        self.max_payload_bytes = UNBOUNDED_BYTES
        self._prefix = keys.pool_prefix(name)
        self.library = library or library_text(DISPATCH)
        redis.function_load(self.library, replace=True)

    def enqueue(self, ask: Ask, *, max_queue_length: int = 1_000_000) -> str:
        """The kind of the answer: assigned, queued, full or known."""
        return str(self.call(*self.enqueue_call(ask, max_queue_length))[0].decode())

    def enqueue_call(self, ask: Ask, max_queue_length: int = 1_000_000) -> tuple[Any, ...]:
        order = EnqueueOrder(
            request_id=ask.request_id,
            service_class=ask.service_class,
            tenant=ask.tenant,
            project=ask.project,
            key=ask.key,
            weight=ask.weight,
            prompt_bound=ask.prompt,
            output_bound=ask.output,
            gateway=ask.gateway,
            arrived_at_ms=self.now_ms,
            ttft_target_ms=int(ask.seconds * 1000),
            max_wait_ms=int(ask.seconds * 1000),
            on_saturation=ask.on_saturation,
            is_resumable=ask.is_resumable,
            adapter=ask.adapter,
            attempts=ask.attempts,
            resumed=ask.resumed,
            max_queue_length=max_queue_length,
            sequences=ask.sequences,
            max_payload_bytes=self.max_payload_bytes,
            max_load_ms=ask.load_ms,
        )
        return (
            functions.ENQUEUE,
            msgspec.msgpack.encode(order),
            envelope_of(ask),
            ask.owed_end,
            self.now_ms,
        )

    def register(self, worker_id: str) -> None:
        self.call(functions.REGISTER, worker_id, worker_id, b"info", self.now_ms)

    def claim(
        self,
        worker_id: str,
        slots: int,
        *,
        kv_tokens: int = 0,
        adapter_slots: int = 0,
        ready: bool = True,
    ) -> list[Started]:
        posted = (slots, kv_tokens, adapter_slots, int(ready))
        answer = self.call(functions.CLAIM, worker_id, b"info", *posted, self.now_ms)
        return [started(message) for message in answer]

    def post(self, worker_id: str, **levels: AdapterLevel | None) -> None:
        """How near a worker has adapters now; None: it has one no more."""
        self.call(*self.post_call(worker_id, levels))

    def post_loaded(self, worker_id: str, adapter: str, load_us: int) -> None:
        """A worker has loaded an adapter, and its engine stood still for so long."""
        self.call(*self.post_call(worker_id, {adapter: AdapterLevel.MEMORY}, {adapter: load_us}))

    def post_call(
        self,
        worker_id: str,
        levels: Mapping[str, AdapterLevel | None],
        load_us: Mapping[str, int] | None = None,
    ) -> tuple[Any, ...]:
        posted: list[str | int] = []
        for adapter, level in levels.items():
            posted += (adapter, int(level or 0), (load_us or {}).get(adapter, 0))
        return functions.POST_ADAPTERS, worker_id, self.now_ms, *posted

    def levels(self, worker_id: str) -> dict[str, int]:
        """How near a worker has each adapter, as it is kept."""
        found = self.numbers(keys.pool_worker_levels(self.name, worker_id))
        return {adapter: int(level) for adapter, level in found.items()}

    def beat(self, worker_id: str, loop_age_ms: int = 0) -> None:
        self.call(functions.BEAT, worker_id, b"info", loop_age_ms, self.now_ms)

    def settle(
        self, worker_id: str, progress: list[tuple[str, int, int, int]], *, step_us: int = 0
    ) -> int:
        """`progress`: request id, attempt, prompt tokens, output tokens. How many were stale."""
        return int(self.call(*self.settle_call(worker_id, progress, step_us)))

    def settle_call(
        self, worker_id: str, progress: list[tuple[str, int, int, int]], step_us: int = 0
    ) -> tuple[Any, ...]:
        lines = "".join(" ".join(map(str, each)) + "\n" for each in progress)
        return functions.REPORT_PROGRESS, worker_id, b"info", step_us, lines, self.now_ms

    def finish(self, request_id: str, attempt: int, prompt: int = 0, output: int = 0) -> bool:
        return bool(self.call(*self.finish_call(request_id, attempt, prompt, output))[0] == 1)

    def finish_call(
        self, request_id: str, attempt: int, prompt: int = 0, output: int = 0
    ) -> tuple[Any, ...]:
        entry = f"{request_id} {attempt} {prompt} {output}"
        now_ms, lost = self.now_ms, 0
        return (
            functions.FINISH,
            request_id,
            attempt,
            entry,
            prompt,
            output,
            lost,
            "",
            "",
            "",
            now_ms,
        )

    def ask(self, ask: Ask) -> list[Any]:
        """All that `enqueue` answers."""
        return list(self.call(*self.enqueue_call(ask)))

    def outlook(self, tenant: str, service_class: str = "interactive") -> list[int]:
        """Position, wait in ms (-1: unknown), waiting of this flow, length of the queue."""
        return list(self.call(functions.FORECAST, service_class, tenant, self.now_ms))

    def requeue(
        self,
        request_id: str,
        attempt: int,
        reason: str = "worker_lost",
        envelope: bytes = b"",
        resumed: int = 0,
    ) -> list[Any]:
        arguments = (request_id, attempt, reason, envelope, resumed, self.now_ms)
        return list(self.call(functions.REQUEUE, *arguments))

    def adopt(self, worker_id: str, held: list[tuple[Ask, int]]) -> list[str]:
        """Requests and attempts that a worker holds; the ids of those it must let go."""
        arguments: list[Any] = []
        for ask, attempt in held:
            arguments += [adoption(ask, attempt, self.now_ms), envelope_of(ask)]
        stale = self.call(functions.ADOPT, worker_id, self.now_ms, *arguments)
        return [each.decode() for each in stale]

    def preemptions(self, worker_id: str) -> list[Started]:
        """What a worker was asked to give up since; the rest of its inbox is lost."""
        key = keys.pool_inbox(self.name, worker_id)
        messages = cast(list[bytes], self.redis.lrange(key, 0, -1))
        self.redis.delete(key)
        return [started(each) for each in messages if each.startswith(b"preempt")]

    def messages(self, worker_id: str) -> list[tuple[str, str, int]]:
        """All that a worker was told since: the word that a message begins with, the request (of a
        prefetch the adapter) and the attempt (0)."""
        key = keys.pool_inbox(self.name, worker_id)
        found = cast(list[bytes], self.redis.lrange(key, 0, -1))
        self.redis.delete(key)
        heads = [each.partition(b"\n")[0].decode().split(" ") for each in found]
        return [(word, name, int(*attempt)) for word, name, *attempt in heads]

    def prefetches(self, worker_id: str) -> list[str]:
        """The adapters that a worker was told to get since; the rest of its inbox is lost."""
        return [name for word, name, _ in self.messages(worker_id) if word == "prefetch"]

    def cancel(self, request_id: str) -> str:
        return str(self.call(functions.CANCEL, request_id).decode())

    def reap(self, gateway: str = "gateway") -> list[tuple[str, int]]:
        """Request and attempt of what a gateway has to end; it shows that it is there."""
        return _found(self.call(*self.reap_call(gateway)))

    def reap_call(self, gateway: str = "gateway") -> tuple[Any, ...]:
        return functions.REAP, WORKER_LEASE_MS, 0, 10_000, gateway, self.now_ms

    def note_gateway(self, gateway: str) -> None:
        """Have a gateway seen, as any call of its does, without one that would change more."""
        self.redis.zadd(keys.pool_gateways(self.name), {gateway: self.now_ms})

    def reap_gone(self, gateway: str = "gateway") -> list[tuple[str, int]]:
        """What a gateway has left behind, once it is gone."""
        call = (functions.REAP_GONE, WORKER_LEASE_MS, 10_000, gateway, self.now_ms)
        return _found(self.call(*call))

    def inbox(self, worker_id: str) -> list[Started]:
        """What a worker was handed since; cancellations are left out."""
        key = keys.pool_inbox(self.name, worker_id)
        messages = cast(list[bytes], self.redis.lrange(key, 0, -1))
        self.redis.delete(key)
        return [started(each) for each in messages if each.startswith(b"assign")]

    def counter(self, tenant: str, service_class: str = "interactive") -> float:
        return self.numbers(keys.pool_flow(self.name, service_class, tenant)).get("counter", 0.0)

    def scheduler(self) -> dict[str, float]:
        return self.numbers(keys.pool_scheduler(self.name))

    def worker_numbers(self, worker_id: str) -> dict[str, float]:
        return self.numbers(keys.pool_worker_numbers(self.name, worker_id))

    def numbers(self, key: str) -> dict[str, float]:
        found = cast(dict[bytes, bytes], self.redis.hgetall(key))
        return {field.decode(): float(value) for field, value in found.items()}

    def waiting(self) -> int:
        return self.redis.zcard(keys.pool_queue(self.name))

    def call(self, function: str, *arguments: Any) -> Any:
        return self.redis.fcall(function, 1, self._prefix, *arguments)

    def call_all(self, calls: list[tuple[Any, ...]]) -> list[Any]:
        """Many calls in one round trip, in order."""
        pipeline = self.redis.pipeline(transaction=False)
        for function, *arguments in calls:
            pipeline.fcall(function, 1, self._prefix, *arguments)
        return list(pipeline.execute())


def _found(rows: list[Any]) -> list[tuple[str, int]]:
    return [(request_id.decode(), attempt) for request_id, attempt, *_ in rows]


def envelope_of(ask: Ask) -> bytes:
    return b"envelope".ljust(ask.payload, b".")


def started(message: bytes) -> Started:
    _, request_id, attempt = message.partition(b"\n")[0].decode().split(" ")
    return Started(request_id=request_id, attempt=int(attempt))


def adoption(ask: Ask, attempt: int, arrived_at_ms: int) -> str:
    """The line that `adopt` takes of a request."""
    milliseconds = int(ask.seconds * 1000)
    words = (ask.request_id, attempt, ask.service_class, ask.tenant, ask.project, ask.key)
    rest = (ask.weight, ask.prompt, ask.output, ask.gateway, arrived_at_ms, milliseconds)
    flags = (milliseconds, int(ask.is_resumable), ask.resumed, ask.sequences, ask.adapter)
    return " ".join(map(str, (*words, *rest, *flags))).rstrip()
