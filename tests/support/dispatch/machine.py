"""The state machine over the dispatch and admission functions in a real Redis, in any order of
enqueue, claim, beat, settle, finish, cancel, requeue, preemption, adoption, death, pause, expiry,
loss of
gateways, of Redis and time. What is always so stands in `dispatch_invariants`."""

from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from redis import Redis

from gpu_workers.protocol.adapters import AdapterLevel
from inference.lua_constants import STALE_LOOP_MS
from tests.support.dispatch.actions import Actions
from tests.support.dispatch.invariants import (
    ADAPTERS,
    CLASSES,
    MOST_OUTPUT,
    MOST_PROMPT,
    MOST_SEQUENCES,
    SLOTS,
    WEIGHTS,
)
from tests.support.dispatch.model import Gateway, Model, Worker
from tests.support.dispatch.reserving import Reserving
from tests.support.dispatch.virtual_pool import Ask, VirtualPool
from tests.support.servers import servers

numbers = st.integers(0, 10**6)
which_worker = which_gateway = st.integers(0, 1)


class DispatchMachine(Actions, RuleBasedStateMachine):
    """Gateways, two workers and their Redis. `library`: other dispatch functions than ours."""

    library: ClassVar[str | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.redis = Redis.from_url(servers().dispatch_redis.url, socket_timeout=None)
        self.redis.flushall()
        self.pool = VirtualPool(self.redis, library=self.library)
        self.reserving = Reserving(self.redis)
        self.model = Model()

    @initialize(
        adapter_slots=st.sampled_from([0, 0, 1, 2]), kv_tokens=st.sampled_from([0, 0, 1_500])
    )
    def start_the_workers(self, adapter_slots: int, kv_tokens: int) -> None:
        for name in ("one", "two"):
            worker = Worker(name, adapter_slots, kv_tokens)
            self.model.workers.append(worker)
            self.register(worker)
            self.post_slots(worker, 3)
        self.model.gateways += [Gateway("west"), Gateway("east")]

    def teardown(self) -> None:
        """When faults have stopped and everybody has done his part, nothing is left."""
        try:
            for worker in self.model.workers:
                self.come_back(worker)
            for gateway in self.model.gateways:
                gateway.is_silent = False
                self.show_life(gateway)
            for request in self.model.all("lost"):
                self.enqueue_again_after_loss(request)
            for request in [*self.model.all("queued"), *self.model.all("running")]:
                if request.state == "queued":
                    self.finish_by_gateway(request)
            while running := self.model.all("running"):
                self.end(running[0], running[0].attempt)
            self.sweep()
            self.nothing_is_left()
        finally:
            self.redis.close()

    # gateways -------------------------------------------------------------------------------------

    @rule(
        path=st.tuples(
            st.sampled_from(sorted(WEIGHTS)), st.sampled_from("pq"), st.sampled_from("kl")
        ),
        service_class=st.sampled_from(CLASSES),
        sizes=st.tuples(st.integers(1, MOST_PROMPT), st.integers(1, MOST_OUTPUT)),
        parts=st.tuples(st.floats(0, 1), st.floats(0, 1)),
        seconds=st.sampled_from([1, 3, 600]),
        on_saturation=st.sampled_from(["wait", "wait", "refuse"]),
        is_resumable=st.sampled_from([True, True, False]),
        adapter=st.sampled_from(["", "", *ADAPTERS]),
        sequences=st.sampled_from([1, 1, 1, 2, 4, MOST_SEQUENCES]),
        which=which_gateway,
        count=st.sampled_from([1, 1, 2, 5, 12]),
        payload=st.sampled_from([8, 500]),
    )
    def enqueue(
        self,
        path: tuple[str, str, str],
        service_class: str,
        sizes: tuple[int, int],
        parts: tuple[float, float],
        seconds: int,
        on_saturation: str,
        is_resumable: bool,
        adapter: str,
        sequences: int,
        which: int,
        count: int,
        payload: int,
    ) -> None:
        gateway = self.model.gateways[which]
        if gateway.is_silent:
            return
        for _ in range(count):
            ask = Ask(
                request_id=f"r{len(self.model.requests):05d}",
                tenant=path[0],
                project=path[1],
                key=path[2],
                weight=WEIGHTS[path[0]],
                service_class=service_class,
                prompt=sizes[0],
                output=sizes[1],
                seconds=seconds,
                on_saturation=on_saturation,
                is_resumable=is_resumable,
                adapter=f"{path[0]}-{adapter}"
                if adapter and self.model.workers[0].adapter_slots
                else "",
                sequences=sequences,
                gateway=gateway.gateway_id,
                payload=payload,
            )
            if not self.begin(ask, parts):
                return

    @rule(number=numbers)
    def enqueue_what_is_known(self, number: int) -> None:
        request = self.model.pick(number, "queued", "running", "finished")
        if request is not None and self.is_remembered(request):
            assert self.pool.enqueue(request.ask) == "known"

    @rule(number=numbers)
    def cancel(self, number: int) -> None:
        request = self.model.pick(number, "queued", "running")
        if request is None:
            return
        assert self.pool.cancel(request.ask.request_id) == request.state
        request.is_cancelled = True

    @rule(number=numbers)
    def finish_what_is_cancelled(self, number: int) -> None:
        found = [each for each in self.model.all("queued") if each.is_cancelled]
        if found:
            self.finish_by_gateway(found[number % len(found)])

    @rule()
    def look_for_what_is_overdue(self) -> None:
        self.reap()

    @rule(number=numbers, count=st.integers(1, 20))
    def enqueue_after_loss(self, number: int, count: int) -> None:
        for _ in range(count):
            request = self.model.pick(number, "lost")
            if request is not None:
                self.enqueue_again_after_loss(request)

    @rule(
        which=which_gateway,
        seconds=st.sampled_from([3, 7, 20]),
        comes_back=st.sampled_from(["at once", "later", "never"]),
        slots=st.integers(0, SLOTS),
    )
    def lose_sight_of_a_gateway(
        self, which: int, seconds: int, comes_back: str, slots: int
    ) -> None:
        """It stands still and goes on later, or is dead and another process takes its place."""
        gateway = self.model.gateways[which]
        gateway.is_silent = True
        self.time_passes(seconds * 1_000)
        for worker in self.model.workers:
            if worker.is_known and not worker.is_silent:
                self.post_slots(worker, slots)
        if comes_back == "never":
            self.time_passes(7_000)
            self.lose_gateway(gateway)
        elif comes_back == "at once":
            self.gateway_comes_back(which)

    @rule(which=which_gateway)
    def gateway_comes_back(self, which: int) -> None:
        gateway = self.model.gateways[which]
        if gateway.is_silent:
            gateway.is_silent = False
            self.show_life(gateway)
            for worker in self.model.workers:
                if worker.is_known and not worker.is_silent:
                    self.post_slots(worker, SLOTS)

    # workers --------------------------------------------------------------------------------------

    @rule(
        which=which_worker, slots=st.integers(0, SLOTS), ready=st.sampled_from([True] * 5 + [False])
    )
    def claim(self, which: int, slots: int, ready: bool) -> None:
        worker = self.model.workers[which]
        if worker.is_known and not worker.is_silent:
            self.post_slots(worker, slots, ready=ready)

    @rule(
        which=which_worker,
        levels=st.dictionaries(
            st.tuples(st.sampled_from(sorted(WEIGHTS)), st.sampled_from(ADAPTERS)).map("-".join),
            st.sampled_from([None, *AdapterLevel]),
            max_size=3,
        ),
    )
    def post_adapters(self, which: int, levels: dict[str, AdapterLevel | None]) -> None:
        worker = self.model.workers[which]
        if worker.is_known and not worker.is_silent and worker.adapter_slots:
            self.post_levels(worker, levels)

    @rule(
        which=which_worker,
        level=st.sampled_from([None, AdapterLevel.DISK, AdapterLevel.MEMORY, AdapterLevel.MEMORY]),
        one_by_one=st.booleans(),
    )
    def answer_prefetches(self, which: int, level: AdapterLevel | None, one_by_one: bool) -> None:
        """A worker has got what it was told to, or could not."""
        worker = self.model.workers[which]
        if not worker.is_known or worker.is_silent:
            return
        for adapter in sorted(worker.coming)[: 1 if one_by_one else None]:
            self.post_levels(worker, {adapter: level})

    @rule(which=which_worker, number=numbers)
    def get_no_adapter(self, which: int, number: int) -> None:
        """A worker's disk is full, or the store away, when it is to load what a request needs."""
        worker = self.model.workers[which]
        if not worker.is_known or worker.is_silent:
            return
        held = [
            each
            for each in self.model.held_by(worker.worker_id)
            if each.ask.adapter and not each.output and each.ask.request_id in worker.hands
        ]
        if held:
            self.give_back(worker, held[number % len(held)])

    @rule(which=which_worker, loop_age_ms=st.sampled_from([0, 0, STALE_LOOP_MS + 1]))
    def beat(self, which: int, loop_age_ms: int) -> None:
        """Renews the lease; from a worker whose loop is stale, takes its credit."""
        worker = self.model.workers[which]
        if worker.is_known and not worker.is_silent:
            self.pool.beat(worker.worker_id, loop_age_ms)
            worker.heartbeat_ms = self.pool.now_ms
            worker.is_busy = worker.is_busy or loop_age_ms > STALE_LOOP_MS

    @rule(which=which_worker, steps=st.integers(1, 80))
    def settle(self, which: int, steps: int) -> None:
        worker = self.model.workers[which]
        if not worker.is_known or worker.is_silent:
            return
        progress, stale = [], 0
        for request_id, attempt in worker.hands.items():
            request = self.model.requests[request_id]
            if self.is_current(request, worker, attempt):
                self.generate(request, steps)
            else:
                stale += 1
            progress.append((request_id, attempt, request.real_prompt, max(1, request.output)))
        assert self.pool.settle(worker.worker_id, progress) == stale
        self.is_there(worker)

    @rule(number=numbers, count=st.integers(1, 8))
    def finish(self, number: int, count: int) -> None:
        """By whoever holds it, as far as he knows."""
        for _ in range(count):
            held = [
                (worker, *item)
                for worker in self.model.workers
                if not worker.is_silent
                for item in worker.hands.items()
            ]
            if held:
                self.finish_by_worker(*held[number % len(held)])

    @rule(number=numbers, attempt=st.integers(0, 3))
    def finish_by_another_attempt(self, number: int, attempt: int) -> None:
        request = self.model.pick(number, "running", "finished")
        if (
            request is not None
            and self.is_remembered(request)
            and (request.state == "finished" or attempt != request.attempt)
        ):
            assert self.finish_code(request, attempt, 7, 7) == 0

    @rule(which=which_worker, slots=st.integers(1, SLOTS))
    def come_back_and_claim(self, which: int, slots: int) -> None:
        worker = self.model.workers[which]
        self.come_back(worker)
        self.post_slots(worker, slots)

    @rule(
        which=which_worker,
        trouble=st.sampled_from(["paused"] * 3 + ["killed"] + ["no Redis"] * 2),
        seconds=st.sampled_from([0, 7, 7]),
        is_noticed=st.booleans(),
        comes_back=st.booleans(),
    )
    def have_trouble(
        self, which: int, trouble: str, seconds: int, is_noticed: bool, comes_back: bool
    ) -> None:
        """A worker is paused or cut off, and goes on later from where it was; or it dies and starts
        anew under its name, so that the earlier process is fenced; or Redis is emptied. Gateways
        may do what they do then before the worker comes back."""
        worker, other = self.model.workers[which], self.model.workers[1 - which]
        if trouble == "paused":
            worker.is_silent = True
            self.time_passes(seconds * 1_000)
            name = f"r{len(self.model.requests):05d}"
            there = [each.gateway_id for each in self.model.gateways if not each.is_silent]
            if there:
                newcomer = Ask(request_id=name, tenant="initech", weight=4, gateway=there[0])
                self.begin(newcomer, (1, 1))
            if is_noticed:
                self.reap()
        elif trouble == "killed":
            worker.incarnation += 1
            worker.hands.clear()
            worker.is_silent = False
            self.register(worker)
        else:
            self.lose_redis()
            if is_noticed:
                self.come_back(other)
                self.post_slots(other, SLOTS)
                for request in self.model.all("lost"):
                    self.enqueue_again_after_loss(request)
        if comes_back:
            self.come_back(worker)
            self.post_slots(worker, SLOTS)

    @rule(milliseconds=st.sampled_from([1, 50, 400, 3_000, 3_000, 7_000, 40_000]))
    def let_time_pass(self, milliseconds: int) -> None:
        self.time_passes(milliseconds)
