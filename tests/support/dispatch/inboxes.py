"""What workers are told in the state machine of dispatch, and whether they may be."""

from gpu_workers.protocol import keys
from gpu_workers.protocol.adapters import AdapterLevel
from inference.lua_constants import COMING_MS, WORKER_LEASE_MS
from tests.support.dispatch.adapter_invariants import AdapterInvariants
from tests.support.dispatch.model import Request, Worker


class Inboxes(AdapterInvariants):
    """Reads them after each call, to the model."""

    def read_inboxes(self) -> list[Request]:
        """What was handed over since, by any worker."""
        handed_over = []
        for worker in self.model.workers:
            for word, name, attempt in self.pool.messages(worker.worker_id):
                if word == "prefetch":
                    self.note_prefetch(worker, name)
                    continue
                request = self.model.requests[name]
                if word == "assign":
                    self.start(worker, name, attempt)
                    handed_over.append(request)
                elif word == "preempt":
                    assert self.is_current(request, worker, attempt)
                    assert request.ask.service_class == "batch"
                    assert request.ask.is_resumable
                    request.gives_way = True
        return handed_over

    def note_prefetch(self, worker: Worker, adapter: str) -> None:
        """A worker is told to get what it has not said it has in memory, and as many at a time as
        it has slots."""
        assert worker.levels.get(adapter, AdapterLevel.DISK) == AdapterLevel.DISK
        assert not self.is_coming(worker, adapter)
        assert not self.is_closed(worker)
        assert not self.has_missed(worker, adapter) or adapter in worker.late
        # What a request begins to run with in the same call is no longer coming.
        if all(each.ask.adapter != adapter for each in self.model.held_by(worker.worker_id)):
            worker.coming[adapter] = self.pool.now_ms
        assert len(worker.coming) <= worker.adapter_slots

    def forget_unanswered(self, worker: Worker) -> None:
        """What a worker that claims has not told of is not awaited any more."""
        for name in list(worker.coming):
            if not self.is_coming(worker, name):
                del worker.coming[name]
                worker.is_mute = True

    def start(self, worker: Worker, request_id: str, attempt: int) -> None:
        """A worker was handed an attempt; it takes note even while it is silent."""
        request = self.model.requests[request_id]
        assert request.state == "queued"
        assert not request.is_cancelled
        assert request.expires_ms > self.pool.now_ms
        assert attempt == request.attempt + 1
        assert attempt not in request.attempts_seen
        assert not worker.is_busy
        assert worker.worker_id not in request.excluded
        assert self.pool.now_ms - worker.heartbeat_ms < WORKER_LEASE_MS
        assert not self.is_missing(request)
        slots = self.redis.zscore(keys.pool_slots(self.pool.name), worker.worker_id)
        assert self.model.sequences_on(worker.worker_id) < (slots or 0)
        assert self.may_run(worker, request.ask.adapter)
        request.attempts_seen.add(attempt)
        request.state, request.worker, request.attempt = "running", worker.worker_id, attempt
        worker.hands[request_id] = attempt
        told_ms = worker.coming.pop(request.ask.adapter, self.pool.now_ms)
        # It may have this one because it left the prefetch unanswered, and so others too.
        worker.is_mute = worker.is_mute or self.pool.now_ms - told_ms > COMING_MS
