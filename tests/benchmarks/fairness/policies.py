"""The schedulers that are compared: five known ones, and ours through the real functions."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from redis import Redis

from gpu_workers.protocol import keys
from tests.benchmarks.fairness.engine import Engine, EngineModel, Request
from tests.support.dispatch.virtual_pool import START_MS, Ask, Started, VirtualPool, started

WORKER = "worker#1"
SETTLE_EVERY_MS, REAP_EVERY_MS, CLAIM_EVERY_MS = 200, 500, 1_000


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """`rate_cap`: units a second that a per-minute cap would allow it."""

    name: str
    weight: int = 1
    service_class: str = "interactive"
    rate_cap: float = float("inf")


class Policy(Protocol):
    """Told of all that happens up to `now_ms`; answers what the engine is to begin."""

    def turn(
        self, arrived: list[Request], ended: list[Request], engine: Engine, now_ms: float
    ) -> list[Request]: ...

    def waiting(self) -> Mapping[str, int]:
        """Requests that wait, by tenant."""
        ...


class InProcess:
    """A policy of a few lines: `push` and `pop`."""

    def __init__(self, tenants: Mapping[str, Tenant]) -> None:
        self.tenants = tenants
        self._counts = dict.fromkeys(tenants, 0)

    def turn(
        self, arrived: list[Request], ended: list[Request], engine: Engine, now_ms: float
    ) -> list[Request]:
        for request in arrived:
            if self.admit(request):
                self._counts[request.tenant] += 1
                self.push(request)
            else:
                request.is_refused = True
        begun: list[Request] = []
        free = engine.free_slots
        while free > 0 and (request_or_none := self.pop()) is not None:
            self._counts[request_or_none.tenant] -= 1
            free -= request_or_none.sequences
            begun.append(request_or_none)
        return begun

    def waiting(self) -> Mapping[str, int]:
        return self._counts

    def admit(self, request: Request) -> bool:
        return True

    def push(self, request: Request) -> None:
        raise NotImplementedError

    def pop(self) -> Request | None:
        raise NotImplementedError


class FirstCome(InProcess):
    """One queue, in order of arrival."""

    def __init__(self, tenants: Mapping[str, Tenant]) -> None:
        super().__init__(tenants)
        self.queue: deque[Request] = deque()

    def push(self, request: Request) -> None:
        self.queue.append(request)

    def pop(self) -> Request | None:
        return self.queue.popleft() if self.queue else None


class PerMinuteCaps(FirstCome):
    """First-come behind a token bucket a tenant that holds one minute of its fair rate."""

    def __init__(self, tenants: Mapping[str, Tenant]) -> None:
        super().__init__(tenants)
        self._used: dict[str, deque[tuple[float, float]]] = {name: deque() for name in tenants}
        self._sums = dict.fromkeys(tenants, 0.0)

    def admit(self, request: Request) -> bool:
        used, name = self._used[request.tenant], request.tenant
        while used and used[0][0] < request.arrived_ms - 60_000:
            self._sums[name] -= used.popleft()[1]
        cost = units(request)
        if self._sums[name] + cost > 60 * self.tenants[name].rate_cap:
            return False
        self._sums[name] += cost
        used.append((request.arrived_ms, cost))
        return True


class PerTenant(InProcess):
    """A queue a tenant."""

    def __init__(self, tenants: Mapping[str, Tenant]) -> None:
        super().__init__(tenants)
        self.queues: dict[str, deque[Request]] = {name: deque() for name in tenants}

    def push(self, request: Request) -> None:
        self.queues[request.tenant].append(request)


class RoundRobin(PerTenant):
    """One request of each tenant in turn."""

    def __init__(self, tenants: Mapping[str, Tenant]) -> None:
        super().__init__(tenants)
        self._turn = deque(tenants)

    def pop(self) -> Request | None:
        for _ in range(len(self._turn)):
            name = self._turn[0]
            self._turn.rotate(-1)
            if self.queues[name]:
                return self.queues[name].popleft()
        return None


class StrictPriority(PerTenant):
    """The class, then the larger weight, then the order of arrival."""

    def pop(self) -> Request | None:
        waiting = [queue[0] for queue in self.queues.values() if queue]
        if not waiting:
            return None
        first = min(waiting, key=self._rank)
        return self.queues[first.tenant].popleft()

    def _rank(self, request: Request) -> tuple[bool, int, float]:
        tenant = self.tenants[request.tenant]
        return tenant.service_class == "batch", -tenant.weight, request.arrived_ms


class DeficitRoundRobin(PerTenant):
    """A quantum of units a round and weight; what a request costs is known beforehand, which is
    more than a real one could know."""

    QUANTUM = 256.0

    def __init__(self, tenants: Mapping[str, Tenant]) -> None:
        super().__init__(tenants)
        self._deficits = dict.fromkeys(tenants, 0.0)
        self._turn = deque(tenants)
        self._is_fresh = True

    def pop(self) -> Request | None:
        if not any(self.queues.values()):
            return None
        while True:
            name = self._turn[0]
            queue = self.queues[name]
            if queue and self._is_fresh:
                self._deficits[name] += self.QUANTUM * self.tenants[name].weight
            self._is_fresh = False
            if queue and units(queue[0]) <= self._deficits[name]:
                request = queue.popleft()
                self._deficits[name] -= units(request)
                return request
            if not queue:
                self._deficits[name] = 0.0
            self._turn.rotate(-1)
            self._is_fresh = True


class Penstock:
    """The real functions in a real Redis: each turn is one pipeline of calls in order of time."""

    def __init__(
        self, tenants: Mapping[str, Tenant], redis: "Redis", *, headroom: int | None = None
    ) -> None:
        self.tenants = tenants
        redis.flushdb()
        self.pool = VirtualPool(redis)
        self.pool.register(WORKER)
        if headroom is not None:
            redis.hset(keys.pool_scheduler(self.pool.name), "headroom", str(headroom))
        self._requests: dict[str, Request] = {}
        self._counts = dict.fromkeys(tenants, 0)
        self._settled_ms = self._reaped_ms = self._claimed_ms = float("-inf")

    def turn(
        self, arrived: list[Request], ended: list[Request], engine: Engine, now_ms: float
    ) -> list[Request]:
        pool = self.pool
        calls = []
        for request in arrived:
            pool.now_ms = START_MS + int(request.arrived_ms)
            self._requests[str(request.number)] = request
            self._counts[request.tenant] += 1
            calls.append(pool.enqueue_call(self._ask(request)))
        pool.now_ms = START_MS + int(now_ms)
        for request in ended:
            name = str(request.number)
            output = request.sequences * request.output
            calls.append(pool.finish_call(name, 1, request.prompt, output))
            del self._requests[name]
        if now_ms - self._settled_ms >= SETTLE_EVERY_MS:
            self._settled_ms = now_ms
            step_us = round(1000 * engine.step_ms)
            calls.append(pool.settle_call(WORKER, _progress(engine), step_us))
        if now_ms - self._reaped_ms >= REAP_EVERY_MS:
            self._reaped_ms = now_ms
            calls.append(pool.reap_call())
        if engine.loads.changes:
            calls.append(pool.post_call(WORKER, engine.loads.changes, engine.loads.took_us))
            engine.loads.changes, engine.loads.took_us = {}, {}
        taken = []
        if now_ms - self._claimed_ms >= CLAIM_EVERY_MS:
            self._claimed_ms = now_ms
            taken = self._answers(calls, engine, now_ms)
            taken += [each.request_id for each in self._claim(engine.model)]
        elif calls:
            taken = self._answers(calls, engine, now_ms)
        begun = [self._requests[request_id] for request_id in taken]
        for request in begun:
            self._counts[request.tenant] -= 1
        return begun

    def waiting(self) -> Mapping[str, int]:
        return self._counts

    def _claim(self, model: EngineModel) -> list[Started]:
        return self.pool.claim(
            WORKER, model.slots, kv_tokens=model.kv_tokens, adapter_slots=model.adapter_slots
        )

    def _answers(self, calls: list[tuple[object, ...]], engine: Engine, now_ms: float) -> list[str]:
        """The requests to begin; prefetches are begun here."""
        inbox = keys.pool_inbox(self.pool.name, WORKER)
        pipeline = self.pool.redis.pipeline(transaction=False)
        for function, *arguments in calls:
            pipeline.fcall(str(function), 1, keys.pool_prefix(self.pool.name), *arguments)
        pipeline.lrange(inbox, 0, -1)
        pipeline.delete(inbox)
        messages: list[bytes] = pipeline.execute()[-2]
        for message in messages:
            word, _, adapter = message.decode().strip().partition(" ")
            if word == "prefetch":
                engine.loads.get(adapter, now_ms)
        return [started(each).request_id for each in messages if each.startswith(b"assign")]

    def _ask(self, request: Request) -> Ask:
        tenant = self.tenants[request.tenant]
        return Ask(
            request_id=str(request.number),
            tenant=request.tenant,
            key=request.key,
            weight=tenant.weight,
            service_class=tenant.service_class,
            prompt=request.prompt,
            output=2 * request.sequences * request.output,
            sequences=request.sequences,
            adapter=request.adapter,
            seconds=100_000,
        )


def _progress(engine: Engine) -> list[tuple[str, int, int, int]]:
    return [
        (str(each.number), 1, each.prompt, each.decoded(engine.step_number))
        for each in engine.held.values()
        if each.first_steps
    ]


def units(request: Request) -> float:
    """The cost of a whole request, in the units that service is counted in."""
    return request.prompt + 2.0 * request.sequences * request.output


BASELINES: dict[str, Callable[[Mapping[str, Tenant]], Policy]] = {
    "first-come": FirstCome,
    "per-minute caps": PerMinuteCaps,
    "round-robin": RoundRobin,
    "strict priority": StrictPriority,
    "deficit round-robin": DeficitRoundRobin,
}
