"""What is always so in dispatch, whatever has happened; checked after every step of the machine."""

from typing import cast

import pytest
from hypothesis.stateful import invariant
from redis import Redis

from gpu_workers.protocol import keys
from inference.lua_constants import GATEWAY_LEASE_MS, HEADROOM_MOST, WORKER_LEASE_MS
from tests.support.dispatch.fairness_bound import Limits, gap_bound
from tests.support.dispatch.model import Model, Request, Worker, cost
from tests.support.dispatch.reserving import Reserving
from tests.support.dispatch.virtual_pool import Ask, VirtualPool

WEIGHTS = {"acme": 1, "globex": 2, "initech": 4}
CLASSES = ["interactive", "batch"]
# Of each tenant
ADAPTERS = ["a", "b"]
SLOTS = 9
MOST_PROMPT, MOST_OUTPUT, MOST_SEQUENCES = 200, 300, 12
FLOWS = [(tenant, name) for tenant in sorted(WEIGHTS) for name in CLASSES]
Scores = list[tuple[bytes, float]]


class Invariants:
    """The checks, over what the machine has."""

    redis: "Redis"
    pool: VirtualPool
    model: Model
    reserving: Reserving

    @invariant()
    def one_record_for_each_request_that_ended(self) -> None:
        """Since Redis was last emptied."""
        assert self.redis.xlen(keys.pool_usage(self.pool.name)) == self.model.records

    @invariant()
    def open_is_what_has_not_ended(self) -> None:
        found = cast(list[bytes], self.redis.zrange(keys.pool_open_requests(self.pool.name), 0, -1))
        known = {each.ask.request_id for each in self.model.all("queued", "running")}
        assert {each.decode() for each in found} == known

    @invariant()
    def reservations_are_those_of_open_requests(self) -> None:
        self.reserving.check()
        held = set().union(*self.reserving.open.values())
        assert held == {each.ask.request_id for each in self.model.all("queued", "running", "lost")}

    @invariant()
    def no_slot_leaks(self) -> None:
        credit = 0.0
        for worker in self.model.workers:
            held = {each.ask.request_id for each in self.model.held_by(worker.worker_id)}
            key = keys.pool_worker_requests(self.pool.name, worker.worker_id)
            members = cast(set[bytes], self.redis.smembers(key))
            assert {member.decode() for member in members} == held
            sequences = self.model.sequences_on(worker.worker_id)
            numbers = self.pool.worker_numbers(worker.worker_id)
            assert numbers.get("extra", 0) == sequences - len(held)
            slots = self.redis.zscore(keys.pool_slots(self.pool.name), worker.worker_id)
            free = self.redis.zscore(keys.pool_free_slots(self.pool.name), worker.worker_id)
            assert (slots is None) == (free is None)
            if slots is not None and free is not None:
                assert free == max(0, slots - sequences)
                credit += free
        assert self.pool.scheduler().get("free", 0) == credit

    @invariant()
    def payloads_are_those_of_open_requests(self) -> None:
        """Counted for the pool and for each flow, in bytes."""
        total = 0
        for tenant, name in FLOWS:
            held = sum(
                self.redis.hstrlen(keys.pool_request(self.pool.name, e.ask.request_id), "envelope")
                for e in self.model.all("queued", "running")
                if e.place == (tenant, name)
            )
            flow = self.pool.numbers(keys.pool_flow(self.pool.name, name, tenant))
            assert flow.get("payload", 0) == held
            total += held
        assert self.pool.scheduler().get("payload", 0) == total

    @invariant()
    def counts_are_those_of_the_requests(self) -> None:
        scheduler = self.pool.scheduler()
        assert all(value >= 0 for value in scheduler.values())
        for tenant, name in FLOWS:
            flow = self.pool.numbers(keys.pool_flow(self.pool.name, name, tenant))
            assert all(value >= 0 for value in flow.values())
            mine = [e for e in self.model.all("running") if e.place == (tenant, name)]
            assert flow.get("running", 0) == sum(each.ask.sequences for each in mine)
            assert flow.get("tokens", 0) == sum(self.tokens_of(each) for each in mine)
        for name in CLASSES:
            mine = [e for e in self.model.all("running") if e.ask.service_class == name]
            running = sum(each.ask.sequences for each in mine)
            assert scheduler.get(f"{name}:running", 0) == running
        for worker in self.model.workers:
            held = self.model.held_by(worker.worker_id)
            used = self.pool.worker_numbers(worker.worker_id).get("kv_used", 0)
            assert used == sum(self.tokens_of(each) for each in held)
            self.check_adapters(worker, held)

    @invariant()
    def who_waits_is_in_the_queue_at_every_level(self) -> None:
        """What is queued and not cancelled or withdrawn stands under its key, key, project and
        tenant in the order of their counters, and is counted."""
        scheduler = self.pool.scheduler()
        for name in CLASSES:
            in_class = 0
            tenants = self.scores(keys.pool_waiting_tenants(self.pool.name, name))
            for tenant in WEIGHTS:
                found = self.waiting_ids(tenant, name)
                queued = {
                    each.ask.request_id: each
                    for each in self.model.all("queued")
                    if each.place == (tenant, name) and not each.is_cancelled
                }
                assert found <= set(queued)
                missing = [queued[each] for each in set(queued) - found]
                assert all(
                    each.expires_ms <= self.pool.now_ms or self.is_missing(each) for each in missing
                )
                flow = self.pool.numbers(keys.pool_flow(self.pool.name, name, tenant))
                assert flow.get("waiting", 0) == len(found)
                assert (tenant in tenants) == bool(found)
                if found:
                    assert tenants[tenant] == pytest.approx(flow.get("counter", 0))
                in_class += len(found)
            assert scheduler.get(f"{name}:waiting", 0) == in_class

    @invariant()
    def what_workers_have_is_what_adapters_have(self) -> None:
        """Workers by adapter and adapters by worker; of a process that was shut out only what runs
        there until somebody ends it."""
        if not self.has_adapters():
            return
        prefix = keys.pool_prefix(self.pool.name)
        by_worker: set[tuple[str, str, int]] = set()
        by_adapter: set[tuple[str, str, int]] = set()
        living = {each.worker_id for each in self.model.workers}
        for key in cast(list[bytes], self.redis.keys(f"{prefix}:levels:*")):
            worker_id = key.decode().removeprefix(f"{prefix}:levels:")
            levels = self.pool.levels(worker_id)
            by_worker |= {(worker_id, adapter, level) for adapter, level in levels.items()}
            assert worker_id in living or set(levels) <= set(self.adapters_on(worker_id)["run"])
        for key in cast(list[bytes], self.redis.keys(f"{prefix}:adapter:*")):
            adapter = key.decode().removeprefix(f"{prefix}:adapter:")
            by_adapter |= {
                (each, adapter, int(level)) for each, level in self.scores(key.decode()).items()
            }
        assert by_worker == by_adapter

    @invariant()
    def who_waits_for_an_adapter_is_known_by_it(self) -> None:
        if not self.has_adapters():
            return
        prefix, counts = keys.pool_prefix(self.pool.name), dict[str, float]()
        ids = set().union(*(self.waiting_ids(*each) for each in FLOWS))
        asks = [self.model.requests[each].ask for each in ids]
        waiting = {
            f"{each.service_class}:{each.tenant}:{each.project}:{each.key}:{each.adapter}:"
            f"{each.request_id}"
            for each in asks
            if each.adapter
        }
        found = {
            f"{key.decode().removeprefix(f'{prefix}:requests:')}:{request_id}"
            for key in cast(list[bytes], self.redis.keys(f"{prefix}:requests:*:*:*:*:*"))
            for request_id in self.scores(key.decode())
        }
        assert found == waiting
        for each in waiting:
            adapter = each.split(":")[-2]
            counts[adapter] = counts.get(adapter, 0) + 1
        assert self.pool.numbers(keys.pool_adapters_waiting(self.pool.name)) == counts

    @invariant()
    def nothing_waits_while_a_worker_has_credit_for_anybody(self) -> None:
        """Beyond the headroom as much as the widest needs, and where neither KV cache, adapters nor
        exclusion stand between. Who needs no adapter waits behind nobody that waits for one."""
        if self.model.workers and self.model.workers[0].kv_tokens:
            return
        scheduler = self.pool.scheduler()
        free, kept = scheduler.get("free", 0), scheduler.get("slots", 0) * HEADROOM_MOST + 1
        posted = self.scores(keys.pool_free_slots(self.pool.name))
        alive_since = self.pool.now_ms - WORKER_LEASE_MS
        live = [each for each in self.model.workers if each.heartbeat_ms > alive_since]
        if free > kept and len(live) == 2 and len(posted) == 2:
            waiting = [
                each
                for each in self.model.all("queued")
                if each.ask.request_id in self.waiting_ids(*each.place) and not each.excluded
                if each.expires_ms > self.pool.now_ms and not self.is_missing(each)
                if not each.ask.adapter
            ]
            widest = max((each.ask.sequences for each in waiting), default=1)
            assert not waiting or free < kept + min(widest, scheduler.get("slots", 0) - kept)

    @invariant()
    def who_has_work_waiting_is_served_alike(self) -> None:
        """Where any worker may take any request: see docs/fairness.md for the bound."""
        if self.model.workers and (
            self.model.workers[0].adapter_slots or self.model.workers[0].kv_tokens
        ):
            return
        for name in CLASSES:
            for index, one in enumerate(sorted(WEIGHTS)):
                for other in sorted(WEIGHTS)[index + 1 :]:
                    self.check_gap(name, one, other)

    def check_gap(self, name: str, one: str, other: str) -> None:
        served = tuple(self.model.served.get((each, name), 0.0) for each in (one, other))
        if not (self.has_work(one, name) and self.has_work(other, name)):
            self.model.since.pop((name, one, other), None)
            return
        start = self.model.since.setdefault((name, one, other), (served[0], served[1]))
        limits = Limits(
            prompt=MOST_PROMPT,
            output=MOST_OUTPUT,
            estimate=MOST_OUTPUT,
            slots=2 * (SLOTS + MOST_SEQUENCES - 1),
        )
        gap = (served[0] - start[0]) / WEIGHTS[one] - (served[1] - start[1]) / WEIGHTS[other]
        assert abs(gap) <= gap_bound(limits, WEIGHTS[one], WEIGHTS[other])

    def nothing_is_left(self) -> None:
        """After the last request has ended."""
        found = cast(list[bytes], self.redis.keys("{m:*"))
        names = {key.decode().split(":")[2] for key in found}
        may_not_stay = {"queue", "waiting", "open", "running", "tenants", "projects", "keys"}
        may_not_stay |= {"requests", "adapters-waiting", "preemptible", "set-aside"}
        assert names & may_not_stay == set()
        scheduler = self.pool.scheduler()
        assert all(not scheduler.get(f"{name}:waiting") for name in CLASSES)
        assert all(not scheduler.get(f"{name}:running") for name in CLASSES)
        self.reserving.check()
        assert not any(self.reserving.open.values())

    # how ------------------------------------------------------------------------------------------

    def check_adapters(self, worker: Worker, held: list[Request]) -> None:
        counts: dict[str, int] = {}
        for each in held:
            if each.ask.adapter:
                counts[each.ask.adapter] = counts.get(each.ask.adapter, 0) + 1
        found = self.adapters_on(worker.worker_id)
        sums = self.pool.redis.hmget(self.adapters_key(worker.worker_id), "distinct", "awaited")
        assert [int(each or 0) for each in sums] == [len(found["run"]), len(found["coming"])]
        assert {adapter: int(count) for adapter, count in found["run"].items()} == counts
        assert len(counts) <= max(worker.adapter_slots, 0)
        assert set(found["turn"]) == set(counts)
        assert set(found["drain"]) <= set(counts)
        assert len(found["drain"]) <= max(1, worker.adapter_slots / 4)
        assert set(found["coming"]) <= set(worker.coming)
        if not self.has_adapters():
            return
        # What runs, or was told to come, and was never posted, is to come.
        expected = dict.fromkeys({*counts, *found["coming"]}, 0) | worker.levels
        assert self.pool.levels(worker.worker_id) == expected

    def has_adapters(self) -> bool:
        return bool(self.model.workers and self.model.workers[0].adapter_slots)

    def adapters_key(self, worker_id: str) -> str:
        return keys.pool_worker_adapters(self.pool.name, worker_id)

    def adapters_on(self, worker_id: str) -> dict[str, dict[str, str]]:
        """What is kept of a worker's adapters, by kind."""
        kinds = ("run", "turn", "drain", "coming", "missed")
        found: dict[str, dict[str, str]] = {kind: {} for kind in kinds}
        hashed = cast(dict[bytes, bytes], self.redis.hgetall(self.adapters_key(worker_id)))
        for field, value in hashed.items():
            kind, _, adapter = field.decode().partition(":")
            if adapter:
                found[kind][adapter] = value.decode()
        return found

    def is_missing(self, request: Request) -> bool:
        """Whose gateway Redis has not heard of for so long that nobody may start it."""
        gateway = self.model.gateway(request.ask.gateway)
        return gateway is None or self.pool.now_ms - gateway.seen_ms >= GATEWAY_LEASE_MS

    def has_work(self, tenant: str, name: str) -> bool:
        """Waiting, and such that any worker may have it."""
        found = [self.model.requests[each] for each in self.waiting_ids(tenant, name)]
        return any(not each.excluded and not self.is_missing(each) for each in found)

    def waiting_ids(self, tenant: str, name: str) -> set[str]:
        found: set[str] = set()
        projects = self.scores(keys.pool_waiting_projects(self.pool.name, name, tenant))
        for project in projects:
            for key in self.scores(keys.pool_waiting_keys(self.pool.name, name, tenant, project)):
                place = (self.pool.name, name, tenant, project, key)
                mine = self.scores(keys.pool_waiting_requests(*place))
                assert mine
                found |= set(mine)
        return found

    def scores(self, key: str) -> dict[str, float]:
        found = cast(Scores, self.redis.zrange(key, 0, -1, withscores=True))
        return {member.decode(): score for member, score in found}

    def tokens_of(self, request: Request) -> float:
        return sum(self._charged(request))

    def charged_to(self, request: Request) -> float:
        return cost(*self._charged(request))

    def _charged(self, request: Request) -> tuple[float, float]:
        key = keys.pool_request(self.pool.name, request.ask.request_id)
        found = cast(list[bytes | None], self.redis.hmget(key, "charged_input", "charged_output"))
        return float(found[0] or 0), float(found[1] or 0)

    def is_current(self, request: Request, worker: Worker, attempt: int) -> bool:
        return (request.state, request.worker, request.attempt) == (
            "running",
            worker.worker_id,
            attempt,
        )

    def is_remembered(self, request: Request) -> bool:
        """Redis has not been emptied since."""
        key = keys.pool_request(self.pool.name, request.ask.request_id)
        return bool(self.redis.exists(key))

    def is_waiting(self, ask: Ask) -> bool:
        key = keys.pool_waiting_tenants(self.pool.name, ask.service_class)
        return self.redis.zscore(key, ask.tenant) is not None

    def level_of_those_that_wait(self, ask: Ask) -> float:
        """What the counter of one that comes to an empty queue is lifted to at least: the least of
        those that wait, or where nobody does, that of the last one served."""
        if self.is_waiting(ask):
            return 0.0
        key = keys.pool_waiting_tenants(self.pool.name, ask.service_class)
        tenants = self.scores(key).values()
        return min(tenants, default=self.pool.scheduler().get(f"{ask.service_class}:floor", 0.0))
