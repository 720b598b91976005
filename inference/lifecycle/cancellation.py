"""Requests whose client has left, or asks for their end, or may not go on."""

import asyncio
from typing import Final

from prometheus_client import Counter
from redis.exceptions import RedisError

from gpu_workers.protocol.messages import Outcome
from inference.background import Background
from inference.dispatch.queue import Dispatch, RequestState
from inference.errors import REDIS_ERRORS, InferenceError
from inference.lifecycle.finisher import Finisher
from inference.lifecycle.inflight_request import InflightRequest
from inference.lifecycle.terminals import cancelled

# A cancellation is repeated after so long. A worker that has read it stops within an engine's step.
REPEAT_SECONDS: Final = 2.0
FIRST_PAUSE_SECONDS: Final = 0.05
MAX_PAUSE_SECONDS: Final = 10.0

CANCELLATIONS: Final = Counter(
    "penstock_gateway_cancellations_total", "Requests whose client left, or asked for their end."
)


class Cancellations:
    """Cancels requests of one gateway process. Each call returns at once; the pool is told in the
    background."""

    def __init__(self, dispatch: Dispatch, finisher: Finisher, background: Background) -> None:
        self._dispatch = dispatch
        self._finisher = finisher
        self._background = background

    def cancel(self, request: InflightRequest) -> None:
        """Ask for the end of a request; does nothing where it has ended or was asked for."""
        # What is still on its way into the queue would be unknown to the pool, and run for nobody.
        if not request.is_enqueued or request.is_cancelled or not request.is_open:
            return
        request.is_cancelled = True
        CANCELLATIONS.inc()
        self.repeat(request)

    def refuse(self, request: InflightRequest, error: InferenceError) -> None:
        """Cancel a request whose caller may not go on: its reader gets this error after what has
        been generated."""
        request.stream.break_off(error)
        self.cancel(request)

    def repeat(self, request: InflightRequest) -> None:
        """Tell the pool of a cancelled request, which it may have lost."""
        self._background.spawn(self._tell_pool(request), name="cancel")

    async def _tell_pool(self, request: InflightRequest) -> None:
        """Retry until the pool has heard it, and repeat it until a running request's worker, which
        may not have, has ended it."""
        was_running, pause = False, FIRST_PAUSE_SECONDS
        while request.is_open:
            try:
                was_running = await self._tell_once(request, was_running=was_running)
            except (RedisError, OSError):
                REDIS_ERRORS.inc()
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
                continue
            if not was_running:
                return
            await asyncio.sleep(REPEAT_SECONDS)

    async def _tell_once(self, request: InflightRequest, *, was_running: bool) -> bool:
        """Return whether the request runs, so that its end has to come from its worker."""
        envelope = request.envelope
        state = await self._dispatch.cancel(envelope.pool, envelope.request_id)
        if state is RequestState.QUEUED:
            await self._finisher.finish(request, 0, Outcome.CANCELLED, cancelled())
        elif state is RequestState.UNKNOWN and not was_running:
            await self._finisher.fail_unrecoverable(request)
        # One that ran and is unknown now was lost with its Redis: its worker may adopt it yet.
        return state is RequestState.RUNNING
