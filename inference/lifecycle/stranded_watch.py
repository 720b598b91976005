"""The watch over a gateway's open requests: ends those that nobody else will.

Workers end what they ran. What is left is past its deadline in the queue, held by a dead worker, or
ended without the end having arrived here.
"""

import asyncio
import time
from typing import Final

import structlog

from gpu_workers.protocol.messages import Outcome
from inference.background import Background
from inference.dispatch.queue import Dispatch, RequestState, Stranded
from inference.lifecycle.cancellation import Cancellations
from inference.lifecycle.finisher import Finisher
from inference.lifecycle.inflight_request import InflightRequest
from inference.lifecycle.inflight_requests import InflightRequests
from inference.lifecycle.recovery import Recovery
from inference.lifecycle.terminals import queue_timeout, worker_lost
from inference.lifecycle.worker_replacement import WorkerReplacement
from inference.streaming.frame_hub import FrameHub

_log = structlog.get_logger(__name__)

WATCH_SECONDS: Final = 0.5
SILENCE_SECONDS: Final = 15.0
# A running request without a frame for so long is asked after: its last frames may be lost.
_IDLE_SECONDS: Final = 3.0


class StrandedWatch:
    """Looks after every open request, twice a second."""

    def __init__(
        self,
        requests: InflightRequests,
        finisher: Finisher,
        cancellations: Cancellations,
        replacement: WorkerReplacement,
        recovery: Recovery,
        dispatch: Dispatch,
        hub: FrameHub,
    ) -> None:
        self._requests = requests
        self._finisher = finisher
        self._cancellations = cancellations
        self._replacement = replacement
        self._recovery = recovery
        self._dispatch = dispatch
        self._hub = hub

    def start(self, background: Background) -> None:
        background.supervise(self._watch, name="stranded-requests")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await self._recovery.resync(self._hub.gateway_id)
            for pool in self._requests.pools:
                if await self._recovery.begin_if_due(pool):
                    continue
                for stranded in await self._dispatch.reap(
                    pool, grace_ms=0, gateway_id=self._hub.gateway_id
                ):
                    await self._end_stranded(stranded)
                await self._ask_after_idle(pool)
            self._look_after_readers()

    async def _end_stranded(self, stranded: Stranded) -> None:
        request = self._requests.get(stranded.request_id)
        if request is None:
            # It reached the queue after this gateway had given it up.
            await self._dispatch.end_unread(stranded)
        elif stranded.state is RequestState.RUNNING:
            await self._replacement.replace(request, stranded.attempt)
        elif request.stream.completion_tokens:
            await self._finisher.finish(request, 0, Outcome.FAILED, worker_lost())
        else:
            await self._finisher.finish(request, 0, Outcome.EXPIRED, queue_timeout(request))

    async def _ask_after_idle(self, pool: str) -> None:
        oldest = time.monotonic() - _IDLE_SECONDS
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
                request.times_missing = 0
                continue
            request.times_missing += 1
            if request.times_missing == 1:
                await self._request_end(request)
            else:
                _log.warning("end_did_not_arrive", request_id=request_id, state=state.value)
                await self._finisher.finish_as_recorded(request)

    async def _request_end(self, request: InflightRequest) -> None:
        """Ask the worker for its last frames, which it keeps for a while and may have been lost."""
        envelope, stream = request.envelope, request.stream
        worker_id = stream.worker_id or await self._dispatch.worker_of(
            envelope.pool, envelope.request_id
        )
        if worker_id is not None:
            await self._hub.request_resend(worker_id, stream)

    def _look_after_readers(self) -> None:
        """Cancel what cannot be given whole any more; let silent streams give a sign of life."""
        now = time.monotonic()
        for request in self._requests.all():
            if request.stream.is_broken:
                self._cancellations.cancel(request)
            last = max(request.stream.last_frame_at, request.pinged_at)
            if now - last >= SILENCE_SECONDS:
                request.pinged_at = now
                request.stream.note_silence()
