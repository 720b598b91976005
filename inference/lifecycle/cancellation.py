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
        """Retry until the pool has heard it. A running request's end then comes from its worker."""
        envelope, pause = request.envelope, FIRST_PAUSE_SECONDS
        while request.is_open:
            try:
                state = await self._dispatch.cancel(envelope.pool, envelope.request_id)
                if state is RequestState.QUEUED:
                    await self._finisher.finish(request, 0, Outcome.CANCELLED, cancelled())
                elif state is RequestState.UNKNOWN:
                    await self._finisher.fail_unrecoverable(request)
                return
            except (RedisError, OSError):
                REDIS_ERRORS.inc()
                await asyncio.sleep(pause)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
