"""What a gateway does for its open requests when the dispatch Redis has lost everything.

Reservations are made again, whatever the limits say by now, before anybody is admitted anew: the
control plane waits for that (inference/operations/resync.py). What waited is queued again then.
What a worker held is left to it for a while: workers come back by themselves and adopt what they
hold. What nobody adopted is queued again, to go on where it was, as far as that is possible.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Final

import structlog
from msgspec import structs

from inference.admission.gate import Admission
from inference.background import Background
from inference.dispatch.answers import Assigned
from inference.dispatch.queue import Dispatch, RequestState
from inference.lifecycle.cancellation import Cancellations
from inference.lifecycle.finisher import Finisher
from inference.lifecycle.inflight_request import InflightRequest
from inference.lifecycle.inflight_requests import InflightRequests
from inference.lifecycle.pool_epochs import PoolEpochs
from inference.lifecycle.reservation_settler import ReservationSettler
from inference.lua_constants import ATTEMPT_GAP
from inference.pools import alone

_log = structlog.get_logger(__name__)

ADOPTION_SECONDS: Final = 2.0
# Budgets and snapshot come back together, from a control plane that looks every few seconds.
_SNAPSHOT_SECONDS: Final = 30.0
_SNAPSHOT_PAUSE_SECONDS: Final = 0.1
# It was in the queue already: there is no refusing it now.
_NO_CAP: Final = 1_000_000_000


class Recovery:
    """Brings a gateway's open requests back into a Redis that has lost them."""

    def __init__(
        self,
        requests: InflightRequests,
        reservations: ReservationSettler,
        finisher: Finisher,
        cancellations: Cancellations,
        epochs: PoolEpochs,
        admission: Admission,
        dispatch: Dispatch,
        background: Background,
    ) -> None:
        self._requests = requests
        self._reservations = reservations
        self._finisher = finisher
        self._cancellations = cancellations
        self._epochs = epochs
        self._admission = admission
        self._dispatch = dispatch
        self._background = background

    async def resync(self, gateway_id: str) -> None:
        """Put back, once while there is no snapshot, whatever of this gateway has to be counted
        before the next request is admitted, by any gateway."""
        if self._admission.has_policy or await self._dispatch.has_resynced(gateway_id):
            return
        for pool in self._requests.pools:
            with alone(pool):
                await self._resync(pool)
        await self._dispatch.note_resynced(gateway_id)

    async def begin_if_due(self, pool: str) -> bool:
        """Begin to recover a pool that Redis has lost since this was last asked; return whether it
        is being recovered."""
        if await self._epochs.is_recovery_due(pool):
            self._background.spawn(self._recover(pool), name="recovery")
        return self._epochs.is_recovering(pool)

    async def _recover(self, pool: str) -> None:
        """Let all that was open in a pool go on, or end it with a typed error."""
        with self._epochs.recovery_of(pool):
            await self._resync(pool)
            await self._wait_for_snapshot()
            await self._enqueue_again(pool)

    async def _resync(self, pool: str) -> None:
        """Reserve again what is open and record again what may not have been collected.
        Idempotent."""
        await self._reservations.restore(self._requests.in_pool(pool))
        await self._finisher.record_again(pool)

    async def _wait_for_snapshot(self) -> None:
        until = time.monotonic() + _SNAPSHOT_SECONDS
        while time.monotonic() < until:
            if await self._admission.is_policy_in_redis():
                return
            await asyncio.sleep(_SNAPSHOT_PAUSE_SECONDS)

    async def _enqueue_again(self, pool: str) -> None:
        held = self._requests.in_pool(pool)
        waiting = [
            each for each in held if each.is_enqueued and not (each.is_running or each.is_cancelled)
        ]
        await self._enqueue_all(waiting)
        await asyncio.sleep(ADOPTION_SECONDS)
        unadopted = await self._unknown_of(pool, held)
        resumable = [each for each in unadopted if each.stream.can_resume and not each.is_cancelled]
        await self._enqueue_all(resumable)
        lost = [each for each in unadopted if each not in resumable]
        for request in lost:
            await self._finisher.fail_unrecoverable(request)
        for request in self._requests.in_pool(pool):
            if request.is_cancelled:
                self._cancellations.repeat(request)
        _log.warning(
            "recovered_from_lost_redis",
            pool=pool,
            open=len(held),
            queued_again=len(waiting) + len(resumable),
            lost=len(lost),
        )

    async def _enqueue_all(self, requests: Iterable[InflightRequest]) -> None:
        await asyncio.gather(*(self._enqueue(each) for each in requests))

    async def _enqueue(self, request: InflightRequest) -> None:
        """Enqueue it as an attempt that none before was: a frame of an earlier one, which may be on
        its way, is never taken for one of this. Nothing comes that this attempt is not told of."""
        stream, next_attempt, holder = request.stream, 0, ""
        attempts = stream.attempt + ATTEMPT_GAP
        stream.hold()
        try:
            envelope = request.resumption() or request.envelope
            answer = await self._dispatch.enqueue(
                structs.replace(envelope, on_saturation="wait"),
                max_queue_length=_NO_CAP,
                attempts=attempts,
            )
            # What waits, or is known, may have been adopted as the attempt that it was.
            if isinstance(answer, Assigned):
                next_attempt, holder = attempts + 1, answer.worker_id
        finally:
            stream.release(next_attempt)
        if holder:
            stream.note_holder(next_attempt, holder)

    async def _unknown_of(self, pool: str, held: list[InflightRequest]) -> list[InflightRequest]:
        """Return those that are still open here and that the pool knows nothing of."""
        asked = [each for each in held if each.is_open and each.is_enqueued]
        if not asked:
            return []
        states = await self._dispatch.states(pool, [each.request_id for each in asked])
        return [each for each in asked if states[each.request_id] is RequestState.UNKNOWN]
