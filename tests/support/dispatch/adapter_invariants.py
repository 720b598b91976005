"""What is always so of adapters in dispatch; checked after every step of the machine."""

from collections.abc import Set

from hypothesis.stateful import invariant

from gpu_workers.protocol import keys
from gpu_workers.protocol.adapters import AdapterLevel
from inference.lua_constants import CLOSED_MS, COMING_MS, HEADROOM_MOST, WORKER_LEASE_MS
from tests.support.dispatch.invariants import FLOWS, Invariants
from tests.support.dispatch.model import Request, Worker


class AdapterInvariants(Invariants):
    """Who waits for an adapter, and what is done for that."""

    @invariant()
    def who_has_an_adapter_drain_waits_for_one(self) -> None:
        if not self.has_adapters():
            return
        waiting = {each.ask.tenant for each in self.waiting_for_adapters()}
        for worker in self.model.workers:
            if worker.is_known:
                assert set(self.adapters_on(worker.worker_id)["drain"].values()) <= waiting

    @invariant()
    def what_is_passed_over_has_its_adapter_brought(self) -> None:
        """By some worker that lives, unless all get as many as they may."""
        if not self.has_adapters():
            return
        live = [each for each in self.model.workers if self.is_alive(each)]
        for each in self.waiting_for_adapters():
            name, adapter = each.ask.request_id, each.ask.adapter
            passes = int(self.redis.hget(keys.pool_request(self.pool.name, name), "passes") or 0)
            before, self.model.passes[name] = self.model.passes.get(name, 0), passes
            if passes == before or each.ask.sequences > 1 or each.excluded:
                continue
            if self.model.workers[0].kv_tokens or not live:
                continue
            assert any(
                self.may_run(worker, adapter) or self.is_coming(worker, adapter) for worker in live
            ) or all(self.gets_enough(worker) or self.is_closed(worker) for worker in live)

    def check_missed(self, worker: Worker, missed: Set[str]) -> None:
        """After a worker has told that it could not get adapters: where it has room for everybody
        it has who waits for them."""
        waiting = [self.model.requests[each] for each in self.waiting_everywhere()]
        mine = [each for each in waiting if each.ask.adapter in missed and not each.excluded]
        credit = self.redis.zscore(keys.pool_free_slots(self.pool.name), worker.worker_id) or 0
        scheduler = self.pool.scheduler()
        has_room = (
            scheduler.get("free", 0) > scheduler.get("slots", 0) * HEADROOM_MOST + 2
            and credit > 0
            and not worker.kv_tokens
            and not self.is_closed(worker)
            and len(self.adapters_on(worker.worker_id)["run"]) < worker.adapter_slots
        )
        # So few that none is hidden behind others, and none so wide that others wait for it
        if has_room and len(waiting) <= 3 and all(each.ask.sequences == 1 for each in waiting):
            assert all(
                self.is_missing(each) or each.expires_ms <= self.pool.now_ms for each in mine
            )

    def may_run(self, worker: Worker, adapter: str) -> bool:
        """Whether nothing has to be loaded, or it cannot be, which others may be told, or it is not
        known."""
        if (
            not adapter
            or worker.levels.get(adapter, 0) >= AdapterLevel.MEMORY
            or any(each.ask.adapter == adapter for each in self.model.held_by(worker.worker_id))
        ):
            return True
        return not self.is_closed(worker) and (
            self.has_missed(worker, adapter)
            or worker.is_mute
            or any(self.pool.now_ms - at > COMING_MS for at in worker.coming.values())
        )

    def has_missed(self, worker: Worker, adapter: str) -> bool:
        at = worker.missed.get(adapter)
        return at is not None and self.pool.now_ms - at <= COMING_MS

    def is_closed(self, worker: Worker) -> bool:
        at = worker.closed_ms
        return at is not None and self.pool.now_ms - at <= CLOSED_MS

    def is_coming(self, worker: Worker, adapter: str) -> bool:
        at = worker.coming.get(adapter)
        return at is not None and self.pool.now_ms - at <= COMING_MS

    def gets_enough(self, worker: Worker) -> bool:
        coming = [each for each in worker.coming if self.is_coming(worker, each)]
        return len(coming) >= worker.adapter_slots

    def is_alive(self, worker: Worker) -> bool:
        return worker.is_known and self.pool.now_ms - worker.heartbeat_ms < WORKER_LEASE_MS

    def waiting_for_adapters(self) -> list[Request]:
        waiting = [self.model.requests[each] for each in self.waiting_everywhere()]
        return [each for each in waiting if each.ask.adapter]

    def waiting_everywhere(self) -> set[str]:
        return set().union(*(self.waiting_ids(*each) for each in FLOWS))
