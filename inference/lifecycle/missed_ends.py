"""Open requests of which nothing has come for a while although no attempt is under way, as their
pool knows: they have had an end, and it is fetched."""

import time
from typing import Final

import structlog
from prometheus_client import Counter

from inference.dispatch.queue import Dispatch, RequestState
from inference.dispatch.worker_registry import WorkerRegistry
from inference.lifecycle.finisher import Finisher
from inference.lifecycle.inflight_request import InflightRequest
from inference.lifecycle.inflight_requests import InflightRequests
from inference.streaming.frame_hub import FrameHub

_log = structlog.get_logger(__name__)

IDLE_SECONDS: Final = 3.0
# A worker answers what it is asked, if only that it has nothing. One whose lease is alive and that
# says nothing for so long has a fault.
PATIENCE_SECONDS: Final = 60.0

FETCHED: Final = Counter(
    "penstock_gateway_fetched_ends_total", "Ends that did not come and were read from Redis."
)


class MissedEnds:
    """Fetches an end from where the worker's `finish` left it, else from the worker itself, as long
    as that holds its lease and has not said that it has none."""

    def __init__(
        self,
        requests: InflightRequests,
        finisher: Finisher,
        dispatch: Dispatch,
        workers: WorkerRegistry,
        hub: FrameHub,
    ) -> None:
        self._requests = requests
        self._finisher = finisher
        self._dispatch = dispatch
        self._workers = workers
        self._hub = hub

    async def fetch(self, pool: str) -> None:
        """Look at all requests in the pool that are idle."""
        oldest = time.monotonic() - IDLE_SECONDS
        idle = {
            request.request_id: request
            for request in self._requests.in_pool(pool)
            if request.is_enqueued and request.stream.last_frame_at < oldest
        }
        if not idle:
            return
        for request_id, state in (await self._dispatch.states(pool, list(idle))).items():
            request = idle[request_id]
            if state in (RequestState.QUEUED, RequestState.RUNNING):
                request.missed_looks = 0
            else:
                await self._fetch(request, state)

    async def _fetch(self, request: InflightRequest, state: RequestState) -> None:
        if await self._hub.read_last_frames(request.stream):
            FETCHED.inc()
            _log.info("end_fetched", request_id=request.request_id)
            return
        if not request.missed_looks:
            request.missed_since = time.monotonic()
        request.missed_looks += 1
        worker_id = request.stream.worker_id or await self._dispatch.worker_of(
            request.envelope.pool, request.request_id
        )
        if worker_id is None or not await self._may_come(request, worker_id):
            _log.warning("end_did_not_arrive", request_id=request.request_id, state=state.value)
            await self._finisher.finish_as_recorded(request)
        elif request.missed_looks & (request.missed_looks - 1) == 0:  # ever more rarely
            await self._hub.request_resend(worker_id, request.stream)

    async def _may_come(self, request: InflightRequest, worker_id: str) -> bool:
        """Return whether the worker may still send it: it holds its lease, be it paused or busy."""
        if request.stream.is_unfillable:
            return False
        if time.monotonic() - request.missed_since > PATIENCE_SECONDS:
            return False
        return await self._workers.is_live(request.envelope.pool, worker_id)
