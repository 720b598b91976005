"""Another attempt for a request whose worker cannot go on with it."""

import structlog

from gpu_workers.protocol.messages import Outcome, Requeued, RetryReason
from inference.background import Background
from inference.dispatch.queue import Dispatch, RequestState
from inference.lifecycle.finisher import Finisher
from inference.lifecycle.inflight_request import InflightRequest
from inference.lifecycle.inflight_requests import InflightRequests
from inference.lifecycle.pool_epochs import PoolEpochs
from inference.lifecycle.terminals import attempts_exhausted, cancelled, worker_lost
from inference.streaming.token_stream import frames_lost

_log = structlog.get_logger(__name__)


class WorkerReplacement:
    """Replaces workers that died, and those that have not kept what a stream is missing."""

    def __init__(
        self,
        requests: InflightRequests,
        dispatch: Dispatch,
        finisher: Finisher,
        epochs: PoolEpochs,
        background: Background,
    ) -> None:
        self._requests = requests
        self._dispatch = dispatch
        self._finisher = finisher
        self._epochs = epochs
        self._background = background

    def start(self) -> None:
        self._background.supervise(self._regenerate_unfilled, name="unfilled-gaps")

    async def replace(
        self, request: InflightRequest, attempt: int, reason: RetryReason = "worker_lost"
    ) -> None:
        """Let another attempt go on where this one cannot, if its reader need not notice; else end
        the request."""
        if request.is_cancelled:
            await self._finisher.finish(request, attempt, Outcome.CANCELLED, cancelled())
        elif not request.stream.can_resume:
            await self._finisher.finish(request, attempt, Outcome.FAILED, worker_lost())
        else:
            await self._requeue(request, attempt, reason)

    async def _requeue(self, request: InflightRequest, attempt: int, reason: RetryReason) -> None:
        stream, envelope = request.stream, request.envelope
        stream.hold()  # from here on nothing may come that the next worker is not told of
        answer, next_attempt = None, 0
        try:
            answer = await self._dispatch.requeue(
                envelope.pool, envelope.request_id, attempt, request.resumption(), reason=reason
            )
            if answer is Requeued.REQUEUED:
                next_attempt = attempt + 1
                _log.info(
                    "attempt_replaced",
                    request_id=envelope.request_id,
                    attempt=attempt,
                    reason=reason,
                )
        finally:
            stream.release(next_attempt)
        if answer is Requeued.STALE and reason == "frames_lost":
            states = await self._dispatch.states(envelope.pool, [envelope.request_id])
            # What a lost Redis does not know is recovery's: its worker may adopt it yet.
            if states[envelope.request_id] is not RequestState.UNKNOWN:
                stream.break_off(frames_lost())
        if answer is Requeued.EXHAUSTED:
            await self._finisher.finish(
                request, attempt, Outcome.FAILED, attempts_exhausted(), is_dead_letter=True
            )

    async def _regenerate_unfilled(self) -> None:
        while True:
            request = await self._requests.next_unfilled()
            self._background.spawn(self._regenerate(request), name="regenerate")

    async def _regenerate(self, request: InflightRequest) -> None:
        """Have another attempt make again what the worker has not kept."""
        try:
            # A pool that Redis has lost knows nothing of any attempt until it is back.
            if not self._epochs.is_recovering(request.envelope.pool):
                await self.replace(request, request.stream.attempt, "frames_lost")
        finally:
            request.stream.release()  # what is left of it: the gap is asked for once more
