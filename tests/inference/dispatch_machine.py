"""The state machine over the dispatch and admission functions in a real Redis, in any order of
enqueue, claim, settle, finish, cancel, requeue, preemption, adoption, death, pause, expiry, loss of
Redis and time. What is always so stands in `dispatch_invariants`."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from redis import Redis

from gpu_workers.protocol import keys
from inference.redis_functions import ADMISSION, library_text
from tests.inference.dispatch_invariants import (
    CLASSES,
    MOST_OUTPUT,
    MOST_PROMPT,
    SLOTS,
    WEIGHTS,
    Invariants,
)
from tests.inference.dispatch_model import MOST_TRIES, Model, Request, Worker
from tests.inference.reserving import Reserving
from tests.inference.virtual_pool import Ask, VirtualPool
from tests.servers import servers

LEASE_MS = 6_000
numbers = st.integers(0, 10**6)
which_worker = st.integers(0, 1)


class DispatchMachine(Invariants, RuleBasedStateMachine):
    """Gateways, two workers and their Redis. `library`: other dispatch functions than ours."""

    library: ClassVar[str | None] = None

    def __init__(self) -> None:
        super().__init__()
        self.redis = Redis.from_url(servers().dispatch_redis.url, socket_timeout=None)
        self.redis.flushall()
        self.pool = VirtualPool(self.redis, library=self.library)
        self.reserving = Reserving(self.redis)
        self.model = Model()

    @initialize(adapter_slots=st.sampled_from([0, 0, 2]), kv_tokens=st.sampled_from([0, 0, 1_500]))
    def start_the_workers(self, adapter_slots: int, kv_tokens: int) -> None:
        for name in ("one", "two"):
            worker = Worker(name, adapter_slots, kv_tokens)
            self.model.workers.append(worker)
            self.register(worker)
            self.post_slots(worker, 3)

    def teardown(self) -> None:
        """When faults have stopped and everybody has done his part, nothing is left."""
        try:
            for worker in self.model.workers:
                self.come_back(worker)
            for request in self.model.all("lost"):
                self.enqueue_again_after_loss(request)
            for request in [*self.model.all("queued"), *self.model.all("running")]:
                if request.state == "queued":
                    self.finish_by_gateway(request)
            while running := self.model.all("running"):
                self.end(running[0], running[0].attempt)
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
        adapter=st.sampled_from(["", "", "a", "b", "c"]),
        count=st.sampled_from([1, 1, 2, 5, 12]),
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
        count: int,
    ) -> None:
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
                adapter=adapter if self.model.workers[0].adapter_slots else "",
            )
            if not self.reserving.reserve(ask, self.pool.now_ms):
                return
            level = self.level_of_those_that_wait(ask)
            request = Request(
                ask,
                max(1, int(sizes[0] * parts[0])),
                max(1, int(sizes[1] * parts[1])),
                expires_ms=self.pool.now_ms + seconds * 1000,
            )
            self.model.requests[ask.request_id] = request
            answer = self.pool.ask(ask)
            if answer[0] == b"saturated":
                assert on_saturation == "refuse"
                assert answer[2] > seconds * 1000
                del self.model.requests[ask.request_id]
                self.reserving.settle(ask, 0)
                return
            assert answer[0] in {b"assigned", b"queued"}
            assert self.pool.counter(*request.place) >= level
            self.read_inboxes()
            assert (answer[0] == b"assigned") == (request.state == "running")

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

    def reap(self) -> None:
        """Gateways end what waited too long and requeue what dead workers held."""
        for request_id, attempt in self.pool.reap():
            request = self.model.requests[request_id]
            if not attempt or request.state == "queued":
                assert request.state == "queued"
                assert request.expires_ms < self.pool.now_ms
                self.finish_by_gateway(request)
                continue
            assert (request.state, request.attempt) == ("running", attempt)
            holder = self.model.worker(request.worker)
            assert holder is None or self.pool.now_ms - holder.heartbeat_ms > LEASE_MS
            self.requeue_lost(request)

    @rule(number=numbers, count=st.integers(1, 20))
    def enqueue_after_loss(self, number: int, count: int) -> None:
        for _ in range(count):
            request = self.model.pick(number, "lost")
            if request is not None:
                self.enqueue_again_after_loss(request)

    # workers --------------------------------------------------------------------------------------

    @rule(
        which=which_worker, slots=st.integers(0, SLOTS), ready=st.sampled_from([True] * 5 + [False])
    )
    def claim(self, which: int, slots: int, ready: bool) -> None:
        worker = self.model.workers[which]
        if worker.is_known and not worker.is_silent:
            self.post_slots(worker, slots, ready=ready)

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
        trouble=st.sampled_from(["paused"] * 3 + ["killed", "killed", "no Redis"]),
        is_noticed=st.sampled_from([True, True, False]),
        comes_back=st.booleans(),
    )
    def have_trouble(self, which: int, trouble: str, is_noticed: bool, comes_back: bool) -> None:
        """A worker is paused or cut off, and goes on later from where it was; or it dies and starts
        anew under its name, so that the earlier process is fenced; or Redis is emptied. Gateways
        may do what they do then before the worker comes back."""
        worker, other = self.model.workers[which], self.model.workers[1 - which]
        if trouble == "paused":
            worker.is_silent = True
            if is_noticed:
                self.time_passes(LEASE_MS + 1_000)
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

    # how ------------------------------------------------------------------------------------------

    def lose_redis(self) -> None:
        self.redis.flushall()
        self.redis.function_flush()
        self.redis.function_load(self.pool.library, replace=True)
        self.redis.function_load(library_text(ADMISSION), replace=True)
        for request in self.model.all("queued", "running"):
            request.state, request.worker, request.gives_way = "lost", "", False
            request.tries, request.excluded, request.is_cancelled = 0, set(), False
        self.model.records = 0
        self.model.served.clear()
        self.model.since.clear()
        for worker in self.model.workers:
            worker.is_known = False
        open_requests = [each.ask for each in self.model.all("lost")]
        self.reserving.reserve_again(open_requests, self.pool.now_ms)

    def time_passes(self, milliseconds: int) -> None:
        """Whoever is there lets it be known."""
        self.pool.now_ms += milliseconds
        for worker in self.model.workers:
            if worker.is_known and not worker.is_silent:
                self.pool.settle(worker.worker_id, [])
                self.is_there(worker)

    def register(self, worker: Worker) -> None:
        self.pool.call(
            keys.FUNCTION_REGISTER, worker.worker_id, worker.name, b"info", self.pool.now_ms
        )
        worker.heartbeat_ms, worker.is_known = self.pool.now_ms, True

    def post_slots(self, worker: Worker, slots: int, *, ready: bool = True) -> None:
        taken = self.pool.claim(
            worker.worker_id,
            slots,
            kv_tokens=worker.kv_tokens,
            adapter_slots=worker.adapter_slots,
            ready=ready,
        )
        worker.heartbeat_ms = self.pool.now_ms
        for message in taken:
            self.start(worker, message.request_id, message.attempt)

    def come_back(self, worker: Worker) -> None:
        """It speaks again: to a Redis that lost it by registering and taking its requests back."""
        worker.is_silent = False
        if worker.is_known:
            return
        self.register(worker)
        held = [(self.model.requests[each].ask, attempt) for each, attempt in worker.hands.items()]
        wanted = set()
        for request_id, attempt in list(worker.hands.items()):
            request = self.model.requests[request_id]
            is_free = request.state == "lost" or (
                request.state == "queued"
                and request.attempt <= attempt
                and self.redis.zscore(keys.pool_queue(self.pool.name), request_id) is not None
            )
            if is_free:
                request.state, request.worker, request.attempt = (
                    "running",
                    worker.worker_id,
                    attempt,
                )
                request.expires_ms = self.pool.now_ms + int(request.ask.seconds * 1000)
            elif not self.is_current(request, worker, attempt) and self.is_remembered(request):
                wanted.add(request_id)
        stale = set(self.pool.adopt(worker.worker_id, held))
        assert stale == wanted
        for request_id in stale:
            del worker.hands[request_id]

    def enqueue_again_after_loss(self, request: Request) -> None:
        """What a gateway does for each of its open requests when Redis was emptied."""
        request.ask = replace(request.ask, attempts=request.attempt, on_saturation="wait")
        request.state = "queued"
        request.expires_ms = self.pool.now_ms + int(request.ask.seconds * 1000)
        answer = self.pool.ask(request.ask)
        self.read_inboxes()
        assert (answer[0] == b"assigned") == (request.state == "running")

    def finish_by_worker(self, worker: Worker, request_id: str, attempt: int) -> None:
        request = self.model.requests[request_id]
        if self.is_current(request, worker, attempt):
            self.generate(request, 10**6)
            self.end(request, attempt)
        elif self.is_remembered(request):
            assert self.finish_code(request, attempt, 7, 7) == 0
            del worker.hands[request_id]

    def is_there(self, worker: Worker) -> None:
        """It has renewed its lease, and does as it was asked to."""
        worker.heartbeat_ms = self.pool.now_ms
        for request in [each for each in self.model.held_by(worker.worker_id) if each.gives_way]:
            self.give_way(worker, request)

    def give_way(self, worker: Worker, request: Request) -> None:
        """A worker that was asked to hands a batch request back, with all that it has made."""
        request.gives_way = False
        answer = self.requeue(request, "preempted")
        if request.is_cancelled:
            assert answer == [b"stale"]
            return
        assert answer == [b"requeued", request.attempt]
        del worker.hands[request.ask.request_id]
        self.wait_again(request)

    def requeue_lost(self, request: Request) -> None:
        """A gateway has another worker try what a dead one held, where there is a point in it."""
        before, charged = self.pool.counter(*request.place), self.charged_to(request)
        was_waiting = bool(self.waiting_ids(*request.place))
        answer = self.requeue(request, "worker_lost")
        if request.is_cancelled or request.tries + 1 == MOST_TRIES:
            assert answer == ([b"stale"] if request.is_cancelled else [b"exhausted", MOST_TRIES])
            self.end(request, request.attempt, dead_letter=int(not request.is_cancelled))
            return
        assert answer == [b"requeued", request.attempt]
        request.tries += 1
        request.excluded.add(request.worker)
        if not request.ask.is_resumable:
            self.model.serve(request, -request.service)
            request.output = 0
        started = [each for each in self.wait_again(request) if each.place == request.place]
        if was_waiting:
            refunded = max(0.0, before - charged / request.ask.weight)
            charged = sum(self.charged_to(each) for each in started) / request.ask.weight
            assert self.pool.counter(*request.place) == pytest.approx(refunded + charged)

    def requeue(self, request: Request, reason: str) -> list[Any]:
        return self.pool.requeue(request.ask.request_id, request.attempt, reason)

    def wait_again(self, request: Request) -> list[Request]:
        """What others were handed in the same call."""
        request.state, request.worker = "queued", ""
        request.expires_ms = self.pool.now_ms + int(request.ask.seconds * 1000)
        return self.read_inboxes()

    def finish_by_gateway(self, request: Request) -> None:
        assert self.finish_code(request, 0, 0, request.output) == 1
        self.note_end(request)

    def end(self, request: Request, attempt: int, *, dead_letter: int = 0) -> None:
        """By the current attempt; a repetition is accepted and recorded once."""
        prompt = request.real_prompt if request.output else 0
        before, charged = self.pool.counter(*request.place), self.charged_to(request)
        for _ in range(2):
            code = self.finish_code(request, attempt, prompt, request.output, dead_letter)
            assert code == 1
        worker = self.model.worker(request.worker)
        if worker is not None:
            worker.hands.pop(request.ask.request_id, None)
        self.note_end(request)
        others = sum(
            self.charged_to(each) for each in self.read_inboxes() if each.place == request.place
        )
        change = prompt + 2 * request.output - charged + others
        expected = max(others, before * request.ask.weight + change) / request.ask.weight
        assert self.pool.counter(*request.place) == pytest.approx(expected)

    def note_end(self, request: Request) -> None:
        request.state = "finished"
        self.model.records += 1
        self.reserving.settle(request.ask, request.output)

    def finish_code(
        self, request: Request, attempt: int, prompt: int, output: int, dead_letter: int = 0
    ) -> int:
        name = request.ask.request_id
        entry = f"{name} {attempt} {prompt} {output}"
        return int(
            self.pool.call(
                keys.FUNCTION_FINISH, name, attempt, entry, prompt, output, dead_letter,
                self.pool.now_ms,
            )
        )  # fmt: skip

    def generate(self, request: Request, steps: int) -> None:
        before = request.service
        request.generate(steps)
        self.model.serve(request, request.service - before)

    def read_inboxes(self) -> list[Request]:
        """What was handed over since, by any worker."""
        handed_over = []
        for worker in self.model.workers:
            for word, message in self.pool.messages(worker.worker_id):
                request = self.model.requests[message.request_id]
                if word == "assign":
                    self.start(worker, message.request_id, message.attempt)
                    handed_over.append(request)
                elif word == "preempt":
                    assert self.is_current(request, worker, message.attempt)
                    assert request.ask.service_class == "batch"
                    assert request.ask.is_resumable
                    request.gives_way = True
        return handed_over

    def start(self, worker: Worker, request_id: str, attempt: int) -> None:
        """A worker was handed an attempt; it takes note even while it is silent."""
        request = self.model.requests[request_id]
        assert request.state == "queued"
        assert not request.is_cancelled
        assert request.expires_ms > self.pool.now_ms
        assert attempt == request.attempt + 1
        assert attempt not in request.attempts_seen
        assert worker.worker_id not in request.excluded
        assert self.pool.now_ms - worker.heartbeat_ms < LEASE_MS
        request.attempts_seen.add(attempt)
        request.state, request.worker, request.attempt = "running", worker.worker_id, attempt
        worker.hands[request_id] = attempt
