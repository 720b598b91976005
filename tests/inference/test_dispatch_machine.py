"""Any order of enqueue, claim, settle, finish, cancel, death, lease and time, over a real Redis."""

from dataclasses import dataclass, field
from typing import cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from redis import Redis

from gpu_workers.protocol import keys
from tests.inference.fairness_bound import Limits, gap_bound
from tests.inference.virtual_pool import Ask, Started, VirtualPool
from tests.servers import servers

WEIGHTS = {"acme": 1, "globex": 2, "initech": 4}
CLASSES = ["interactive", "batch"]
WORKERS = ["one#1", "two#1"]
SLOTS = 9
MOST_PROMPT, MOST_OUTPUT = 200, 300


@dataclass
class Request:
    """What the model believes of a request. `output` is what it has made so far."""

    ask: Ask
    real_prompt: int
    real_output: int
    state: str = "queued"
    attempt: int = 0
    deadline_ms: int = 0
    worker: str = ""
    output: int = 0
    is_cancelled: bool = False
    records: int = 0


@dataclass
class Both:
    """Two flows since both have had work waiting: what each had been served then."""

    served: tuple[float, float]


@dataclass
class Model:
    requests: dict[str, Request] = field(default_factory=dict)
    served: dict[tuple[str, str], float] = field(default_factory=dict)
    since: dict[tuple[str, str, str], Both] = field(default_factory=dict)


class DispatchMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.redis = Redis.from_url(servers().dispatch_redis.url, socket_timeout=None)
        self.redis.flushall()
        self.pool = VirtualPool(self.redis)
        self.model = Model()
        self.alive: dict[str, bool] = {}
        for worker in WORKERS:
            self.pool.register(worker)
            self.pool.claim(worker, 3)
            self.alive[worker] = True

    def teardown(self) -> None:
        """When everybody has done his part, nothing is left."""
        self.pool.now_ms += 700_000
        for request_id, request in self.model.requests.items():
            if request.state != "finished":
                attempt = request.attempt if request.state == "running" else 0
                assert self.pool.finish(request_id, attempt, 1, request.output)
        found = cast(list[bytes], self.redis.keys("{m:*"))
        names = {key.decode().split(":")[2] for key in found}
        leftovers = names & {"queue", "withdrawn", "open", "running", "tenants", "requests"}
        assert not leftovers | names & {"projects", "keys"}
        scheduler = self.pool.scheduler()
        assert all(scheduler.get(f"{name}:waiting", 0) == 0 for name in CLASSES)
        self.redis.close()

    # what happens ---------------------------------------------------------------------------------

    @rule(
        tenant=st.sampled_from(sorted(WEIGHTS)),
        key=st.sampled_from(["k1", "k2"]),
        project=st.sampled_from(["p1", "p2"]),
        service_class=st.sampled_from(CLASSES),
        sizes=st.tuples(st.integers(1, MOST_PROMPT), st.integers(1, MOST_OUTPUT)),
        parts=st.tuples(st.floats(0, 1), st.floats(0, 1)),
        seconds=st.sampled_from([1, 3, 600]),
        count=st.integers(1, 12),
    )
    def enqueue(
        self,
        tenant: str,
        key: str,
        project: str,
        service_class: str,
        sizes: tuple[int, int],
        parts: tuple[float, float],
        seconds: int,
        count: int,
    ) -> None:
        for _ in range(count):
            ask = Ask(
                request_id=f"r{len(self.model.requests):05d}",
                tenant=tenant,
                project=project,
                key=key,
                weight=WEIGHTS[tenant],
                service_class=service_class,
                prompt=sizes[0],
                output=sizes[1],
                seconds=seconds,
            )
            level = self.level_of_those_that_wait(tenant, service_class)
            self.model.requests[ask.request_id] = Request(
                ask,
                max(1, int(sizes[0] * parts[0])),
                max(1, int(sizes[1] * parts[1])),
                deadline_ms=self.pool.now_ms + seconds * 1000,
            )
            assert self.pool.enqueue(ask) in {"assigned", "queued"}
            assert self.pool.counter(tenant, service_class) >= level
            self.read_inboxes()

    @rule(number=st.integers(0, 10**6))
    def enqueue_again(self, number: int) -> None:
        if self.model.requests:
            request = self.pick(number, "queued", "running", "finished")
            assert request is not None
            assert self.pool.enqueue(request.ask) == "known"

    @rule(
        worker=st.sampled_from(WORKERS),
        slots=st.integers(0, SLOTS),
        ready=st.sampled_from([True, True, True, False]),
    )
    def claim(self, worker: str, slots: int, ready: bool) -> None:
        if self.alive[worker]:
            self.started(worker, self.pool.claim(worker, slots, ready=ready))

    @rule(worker=st.sampled_from(WORKERS), steps=st.integers(1, 80))
    def settle(self, worker: str, steps: int) -> None:
        if not self.alive[worker]:
            return
        progress = []
        for request in self.held_by(worker):
            self.generate(request, steps)
            progress.append(
                (request.ask.request_id, request.attempt, request.real_prompt, request.output)
            )
        assert self.pool.settle(worker, progress) == 0

    @rule(number=st.integers(0, 10**6))
    def finish(self, number: int) -> None:
        request = self.pick(number, "running")
        if request is not None:
            self.generate(request, 10**6)
            self.end(request, request.attempt)

    @rule(number=st.integers(0, 10**6), attempt=st.integers(0, 3))
    def finish_by_another_attempt(self, number: int, attempt: int) -> None:
        request = self.pick(number, "running", "finished")
        if request is not None and (request.state == "finished" or attempt != request.attempt):
            assert not self.pool.finish(request.ask.request_id, attempt, 7, 7)

    @rule(number=st.integers(0, 10**6))
    def cancel(self, number: int) -> None:
        request = self.pick(number, "queued", "running")
        if request is None:
            return
        state = self.pool.cancel(request.ask.request_id)
        assert state == request.state
        if state == "queued":
            request.is_cancelled = True

    @rule(worker=st.sampled_from(WORKERS))
    def die_and_be_reaped(self, worker: str) -> None:
        """A worker falls silent; its requests are ended by a gateway, and it comes back."""
        for each in WORKERS:
            if each != worker and self.alive[each]:
                self.pool.now_ms += 6_500
                self.pool.settle(each, [])
        self.pool.now_ms += 500
        for request_id, attempt in self.pool.reap():
            request = self.model.requests[request_id]
            assert request.state == ("running" if attempt else "queued")
            if request.state == "running" and request.worker != worker:
                continue
            self.end(request, attempt)
        self.pool.register(worker)

    @rule(milliseconds=st.sampled_from([1, 50, 400, 3_000, 3_000, 7_000, 40_000]))
    def time_passes(self, milliseconds: int) -> None:
        self.pool.now_ms += milliseconds

    # what is always so ----------------------------------------------------------------------------

    @invariant()
    def one_record_for_each_finished_request(self) -> None:
        finished = [each for each in self.model.requests.values() if each.state == "finished"]
        assert self.redis.xlen(keys.pool_usage(self.pool.name)) == len(finished)
        assert all(each.records == 1 for each in finished)

    @invariant()
    def no_slot_leaks(self) -> None:
        credit = 0.0
        for worker in WORKERS:
            held = {each.ask.request_id for each in self.held_by(worker)}
            key = keys.pool_worker_requests(self.pool.name, worker)
            members = cast(set[bytes], self.redis.smembers(key))
            assert {member.decode() for member in members} == held
            slots = self.redis.zscore(keys.pool_slots(self.pool.name), worker)
            free = self.redis.zscore(keys.pool_free_slots(self.pool.name), worker)
            if slots is not None and free is not None:
                assert free == max(0, slots - len(held))
                credit += free
        assert self.pool.scheduler().get("free", 0) == credit

    @invariant()
    def nothing_is_below_zero_and_the_counts_are_right(self) -> None:
        assert all(value >= 0 for value in self.pool.scheduler().values())
        for tenant in WEIGHTS:
            for name in CLASSES:
                flow = self.pool.numbers(keys.pool_flow(self.pool.name, name, tenant))
                assert all(value >= 0 for value in flow.values())
                mine = [each for each in self.of(tenant, name) if each.state == "running"]
                assert flow.get("running", 0) == len(mine)

    @invariant()
    def who_has_work_waiting_is_served_alike(self) -> None:
        for name in CLASSES:
            waiting = [tenant for tenant in sorted(WEIGHTS) if self.is_waiting(tenant, name)]
            for index, one in enumerate(sorted(WEIGHTS)):
                for other in sorted(WEIGHTS)[index + 1 :]:
                    self.check_gap(name, one, other, one in waiting and other in waiting)

    @invariant()
    def who_waits_stands_in_the_order_of_its_counter(self) -> None:
        for name in CLASSES:
            key = keys.pool_waiting_tenants(self.pool.name, name)
            scores = cast(list[tuple[bytes, float]], self.redis.zrange(key, 0, -1, withscores=True))
            for tenant, score in scores:
                assert score == pytest.approx(self.pool.counter(tenant.decode(), name))

    def check_gap(self, name: str, one: str, other: str, both_wait: bool) -> None:
        served = self.service(one, name), self.service(other, name)
        if not both_wait:
            self.model.since.pop((name, one, other), None)
            return
        start = self.model.since.setdefault((name, one, other), Both(served)).served
        limits = Limits(
            prompt=MOST_PROMPT, output=MOST_OUTPUT, estimate=MOST_OUTPUT, slots=2 * SLOTS
        )
        gap = (served[0] - start[0]) / WEIGHTS[one] - (served[1] - start[1]) / WEIGHTS[other]
        assert abs(gap) <= gap_bound(limits, WEIGHTS[one], WEIGHTS[other])

    # the model ------------------------------------------------------------------------------------

    def pick(self, number: int, *states: str) -> Request | None:
        found = [each for each in self.model.requests.values() if each.state in states]
        return found[number % len(found)] if found else None

    def of(self, tenant: str, name: str) -> list[Request]:
        return [
            each
            for each in self.model.requests.values()
            if each.ask.tenant == tenant and each.ask.service_class == name
        ]

    def held_by(self, worker: str) -> list[Request]:
        requests = self.model.requests.values()
        return [each for each in requests if each.state == "running" and each.worker == worker]

    def is_waiting(self, tenant: str, name: str) -> bool:
        key = keys.pool_waiting_tenants(self.pool.name, name)
        return self.redis.zscore(key, tenant) is not None

    def service(self, tenant: str, name: str) -> float:
        return self.model.served.get((tenant, name), 0.0)

    def generate(self, request: Request, steps: int) -> None:
        """An attempt goes on; what it has really taken is its tenant's service."""
        before, request.output = request.output, min(request.output + steps, request.real_output)
        prompt = request.real_prompt if before == 0 else 0
        place = request.ask.tenant, request.ask.service_class
        cost = prompt + 2 * (request.output - before)
        self.model.served[place] = self.model.served.get(place, 0.0) + cost

    def end(self, request: Request, attempt: int) -> None:
        prompt, ask = request.real_prompt if request.output else 0, request.ask
        before = self.pool.counter(ask.tenant, ask.service_class)
        charged = self.charged_to(ask.request_id)
        assert self.pool.finish(ask.request_id, attempt, prompt, request.output)
        assert self.pool.finish(ask.request_id, attempt, prompt, request.output)
        request.state = "finished"
        request.records += 1
        others = [
            self.charged_to(each.request_id)
            for each in self.read_inboxes()
            if self.place_of(each.request_id) == (ask.tenant, ask.service_class)
        ]
        change = prompt + 2 * request.output - charged + sum(others)
        expected = max(sum(others) / ask.weight, before + change / ask.weight)
        if attempt:
            after = self.pool.counter(ask.tenant, ask.service_class)
            assert after == pytest.approx(expected)

    def charged_to(self, request_id: str) -> float:
        found = self.redis.hmget(
            keys.pool_request(self.pool.name, request_id), "charged_input", "charged_output"
        )
        charged = [float(each or 0) for each in cast(list[bytes | None], found)]
        return charged[0] + 2 * charged[1]

    def place_of(self, request_id: str) -> tuple[str, str]:
        ask = self.model.requests[request_id].ask
        return ask.tenant, ask.service_class

    def level_of_those_that_wait(self, tenant: str, name: str) -> float:
        """What the counter of one that comes to an empty queue is lifted to at least."""
        if self.is_waiting(tenant, name):
            return 0.0
        key = keys.pool_waiting_tenants(self.pool.name, name)
        least = cast(list[tuple[bytes, float]], self.redis.zrange(key, 0, 0, withscores=True))
        return least[0][1] if least else 0.0

    def read_inboxes(self) -> list[Started]:
        """What was handed over since."""
        handed_over = []
        for worker in WORKERS:
            messages = self.pool.inbox(worker)
            self.started(worker, messages)
            handed_over += messages
        return handed_over

    def started(self, worker: str, messages: list[Started]) -> None:
        for message in messages:
            request = self.model.requests[message.request_id]
            assert request.state == "queued"
            assert not request.is_cancelled
            assert request.deadline_ms > self.pool.now_ms
            request.state, request.worker = "running", worker
            request.attempt = message.attempt


DispatchMachine.TestCase.settings = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


TestDispatchMachine = DispatchMachine.TestCase
