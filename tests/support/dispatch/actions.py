"""What gateways, workers and Redis do in the state machine of dispatch, with what answers."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from gpu_workers.protocol import functions, keys
from gpu_workers.protocol.adapters import AdapterLevel
from inference.lua_constants import ATTEMPT_GAP, COMING_MS, MOST_TRIES, WORKER_LEASE_MS
from inference.redis_functions import ADMISSION, library_text
from tests.support.dispatch.inboxes import Inboxes
from tests.support.dispatch.model import Gateway, Request, Worker, cost
from tests.support.dispatch.virtual_pool import Ask


class Actions(Inboxes):
    """Each does to Redis what its name says, and the same to the model."""

    def reap(self) -> None:
        """Gateways end what waited too long and requeue what dead workers held."""
        for gateway in [each for each in self.model.gateways if not each.is_silent]:
            for request in self.found(self.show_life(gateway), gateway.gateway_id):
                if request.state == "queued":
                    assert request.expires_ms < self.pool.now_ms
                    self.finish_by_gateway(request)
                else:
                    self.requeue_lost(request)

    def show_life(self, gateway: Gateway) -> list[tuple[str, int]]:
        gateway.seen_ms = self.pool.now_ms
        return self.pool.reap(gateway.gateway_id)

    def lose_gateway(self, gateway: Gateway) -> None:
        """The sweeper ends, at its second look, what nobody else will; another process begins."""
        assert self.pool.reap_gone(gateway.gateway_id) == []
        self.time_passes(6_000)
        for request in self.found(self.pool.reap_gone(gateway.gateway_id), gateway.gateway_id):
            if request.state == "queued":
                self.finish_by_gateway(request)
            else:
                self.end(request, request.attempt)
        self.model.gone.append(gateway.gateway_id)
        gateway.incarnation += 1
        gateway.is_silent, gateway.seen_ms = False, self.pool.now_ms

    def sweep(self) -> None:
        """The sweeper goes on looking: what a worker handed back of one that was gone already is
        forgotten too. At its third look, each has been missed for long enough."""
        for _ in range(3):
            for gateway_id in self.model.gone:
                assert self.pool.reap_gone(gateway_id) == []
            self.pool.now_ms += 6_000

    def found(self, rows: list[tuple[str, int]], gateway_id: str) -> list[Request]:
        found = [self.model.requests[request_id] for request_id, _ in rows]
        for request, (_, attempt) in zip(found, rows, strict=True):
            assert request.ask.gateway == gateway_id
            if request.state != "queued":
                assert (request.state, request.attempt) == ("running", attempt)
                holder = self.model.worker(request.worker)
                silent_ms = WORKER_LEASE_MS + 1
                if holder is not None:
                    silent_ms = self.pool.now_ms - holder.heartbeat_ms
                assert silent_ms > WORKER_LEASE_MS
        return found

    def lose_redis(self) -> None:
        """Who holds an earlier attempt than the last has let it go by then: an empty Redis cannot
        tell it from the last one."""
        for worker in self.model.workers:
            for request_id, attempt in list(worker.hands.items()):
                if not self.is_current(self.model.requests[request_id], worker, attempt):
                    del worker.hands[request_id]
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
            self.forget_adapters_of(worker)
        self.model.passes.clear()
        open_requests = [each.ask for each in self.model.all("lost")]
        self.reserving.reserve_again(open_requests, self.pool.now_ms)

    def time_passes(self, milliseconds: int) -> None:
        """Whoever is there lets it be known: gateways, which were heard all the while, before a
        worker's call starts something in which theirs would be set aside."""
        self.pool.now_ms += milliseconds
        for gateway in self.model.gateways:
            if not gateway.is_silent:
                gateway.seen_ms = self.pool.now_ms
                self.pool.note_gateway(gateway.gateway_id)
        for worker in self.model.workers:
            if worker.is_known and not worker.is_silent:
                self.pool.settle(worker.worker_id, [])
                self.is_there(worker)
        # Where nobody is there, a sweeper still is: no call for a minute is a clock that was set.
        assert self.pool.reap_gone("nobody") == []

    def begin(self, ask: Ask, parts: tuple[float, float]) -> bool:
        """Reserves and enqueues a request that really takes these parts of its bounds."""
        if not self.reserving.reserve(ask, self.pool.now_ms):
            return False
        wait_ms = int(ask.seconds * 1000)
        request = Request(
            ask,
            max(1, int(ask.prompt * parts[0])),
            max(1, int(ask.output * parts[1])),
            expires_ms=self.pool.now_ms + wait_ms,
        )
        level = self.level_of_those_that_wait(ask)
        self.model.requests[ask.request_id] = request
        answer = self.ask(ask)
        if answer[0] == b"saturated":
            assert ask.on_saturation == "refuse"
            assert answer[2] > wait_ms
            del self.model.requests[ask.request_id]
            self.reserving.settle(ask, 0)
            return False
        assert answer[0] in {b"assigned", b"queued"}
        assert self.pool.counter(*request.place) >= level
        self.read_inboxes()
        assert (answer[0] == b"assigned") == (request.state == "running")
        return True

    def ask(self, ask: Ask) -> list[Any]:
        gateway = self.model.gateway(ask.gateway)
        assert gateway is not None
        gateway.seen_ms = self.pool.now_ms
        return self.pool.ask(ask)

    def register(self, worker: Worker) -> None:
        self.pool.call(functions.REGISTER, worker.worker_id, worker.name, b"info", self.pool.now_ms)
        worker.heartbeat_ms, worker.is_known = self.pool.now_ms, True
        self.forget_adapters_of(worker)

    def forget_adapters_of(self, worker: Worker) -> None:
        worker.levels, worker.coming, worker.missed, worker.is_mute = {}, {}, {}, False
        worker.late, worker.closed_ms = set(), None

    def post_levels(self, worker: Worker, levels: Mapping[str, AdapterLevel | None]) -> None:
        """A worker tells how near it has adapters; who waits for what it could not get is handed
        over."""
        self.pool.post(worker.worker_id, **levels)
        missed = set()
        for adapter, level in levels.items():
            told_ms = worker.coming.pop(adapter, None)
            if told_ms is not None and (level or 0) < AdapterLevel.MEMORY:
                worker.missed[adapter] = self.pool.now_ms
                is_late = self.pool.now_ms - told_ms > COMING_MS
                (worker.late.add if is_late else worker.late.discard)(adapter)
                missed |= set() if is_late else {adapter}
            worker.levels.pop(adapter, None)
            if level is not None:
                worker.levels[adapter] = level
        worker.is_mute = worker.is_mute and not levels
        self.read_inboxes()
        self.check_missed(worker, missed)

    def post_slots(self, worker: Worker, slots: int, *, ready: bool = True) -> None:
        if worker.adapter_slots > 0:
            self.forget_unanswered(worker)
        taken = self.pool.claim(
            worker.worker_id,
            slots,
            kv_tokens=worker.kv_tokens,
            adapter_slots=worker.adapter_slots,
            ready=ready,
        )
        worker.heartbeat_ms, worker.is_busy = self.pool.now_ms, False
        for message in taken:
            self.start(worker, message.request_id, message.attempt)
        self.read_inboxes()

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
                and request.attempt <= attempt + ATTEMPT_GAP
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
        """What a gateway does for each of its open requests when Redis was emptied; another one
        does it for those of one that is gone, so that all come to an end."""
        gateway = self.model.gateway(request.ask.gateway)
        if gateway is None or gateway.is_silent:
            gateway = next((each for each in self.model.gateways if not each.is_silent), None)
        if gateway is None:
            return
        request.ask = replace(request.ask, gateway=gateway.gateway_id)
        request.attempt += ATTEMPT_GAP
        request.ask = replace(request.ask, attempts=request.attempt, on_saturation="wait")
        request.state = "queued"
        request.expires_ms = self.pool.now_ms + int(request.ask.seconds * 1000)
        answer = self.ask(request.ask)
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
        was_waiting, level = (
            self.is_waiting(request.ask),
            self.level_of_those_that_wait(request.ask),
        )
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
        refunded = max(0.0, before - charged / request.ask.weight)
        # Who did not wait before is lifted to the level of those that did.
        expected = refunded if was_waiting else max(refunded, level)
        expected += sum(self.charged_to(each) for each in started) / request.ask.weight
        assert self.pool.counter(*request.place) == pytest.approx(expected)

    def give_back(self, worker: Worker, request: Request) -> None:
        """A worker can get no adapter: another tries, where there is one."""
        if not request.is_cancelled:
            worker.closed_ms = self.pool.now_ms
        others = [
            each
            for each in self.model.workers
            if each is not worker and each.worker_id not in request.excluded and self.is_alive(each)
            if self.redis.zscore(keys.pool_slots(self.pool.name), each.worker_id) is not None
        ]
        answer = self.requeue(request, "adapters_unavailable")
        if request.is_cancelled or not others or request.tries + 1 == MOST_TRIES:
            exhausted = [b"exhausted", request.tries + 1]
            assert answer == ([b"stale"] if request.is_cancelled else exhausted)
            self.end(request, request.attempt)
            return
        assert answer == [b"requeued", request.attempt]
        del worker.hands[request.ask.request_id]
        request.gives_way = False
        request.tries += 1
        request.excluded.add(worker.worker_id)
        self.wait_again(request)

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
        change = cost(prompt, request.output) - charged + others
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
                functions.FINISH, name, attempt, entry, prompt, output, dead_letter, "", "", "",
                self.pool.now_ms,
            )[0]
        )  # fmt: skip

    def generate(self, request: Request, steps: int) -> None:
        before = request.service
        request.generate(steps)
        self.model.serve(request, request.service - before)
