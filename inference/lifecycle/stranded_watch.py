"""The watch over a gateway's open requests: ends those that nobody else will.

Workers end what they ran. What is left is past its deadline in the queue, held by a dead worker, or
ended without the end having arrived here.
"""

import asyncio
import heapq
import time
from typing import Final

import structlog

from gpu_workers.protocol.messages import Outcome
from inference.background import Background
from inference.dispatch.queue import Dispatch, RequestState, Stranded
from inference.lifecycle.cancellation import Cancellations
from inference.lifecycle.finisher import UNENDABLE, Finisher
from inference.lifecycle.inflight_requests import InflightRequests
from inference.lifecycle.missed_ends import MissedEnds
from inference.lifecycle.recovery import Recovery
from inference.lifecycle.terminals import queue_timeout, worker_lost
from inference.lifecycle.worker_replacement import WorkerReplacement
from inference.pools import alone

_log = structlog.get_logger(__name__)

WATCH_SECONDS: Final = 0.5
SILENCE_SECONDS: Final = 15.0
# Pools that are looked at in one turn, those first that were not for longest: what a gateway asks
# of Redis does not grow with the pools that there are.
POOLS_A_TURN: Final = 32


class StrandedWatch:
    """Looks after every open request, twice a second, or less often where they are in more than
    `POOLS_A_TURN` pools."""

    def __init__(
        self,
        requests: InflightRequests,
        finisher: Finisher,
        cancellations: Cancellations,
        replacement: WorkerReplacement,
        recovery: Recovery,
        missed_ends: MissedEnds,
        dispatch: Dispatch,
        gateway_id: str,
    ) -> None:
        self._requests = requests
        self._finisher = finisher
        self._cancellations = cancellations
        self._replacement = replacement
        self._recovery = recovery
        self._missed_ends = missed_ends
        self._dispatch = dispatch
        self._gateway_id = gateway_id
        self._turn = 0
        self._looked_at: dict[str, int] = {}  # the turn in which a pool was

    def start(self, background: Background) -> None:
        background.supervise(self._watch, name="stranded-requests")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            await self._recovery.resync(self._gateway_id)
            for pool in self._pools_of_this_turn():
                with alone(pool):
                    await self._look_at(pool)
            self._look_after_readers()

    def _pools_of_this_turn(self) -> list[str]:
        looked_at = {pool: self._looked_at.get(pool, 0) for pool in self._requests.pools}
        turn = heapq.nsmallest(POOLS_A_TURN, looked_at, key=looked_at.__getitem__)
        self._turn += 1
        self._looked_at = looked_at | dict.fromkeys(turn, self._turn)
        return turn

    async def _look_at(self, pool: str) -> None:
        if await self._recovery.begin_if_due(pool):
            return
        for stranded in await self._dispatch.reap(pool, grace_ms=0, gateway_id=self._gateway_id):
            try:
                await self._end_stranded(stranded)
            except UNENDABLE as error:
                self._finisher.set_aside(stranded.request_id, error)
        await self._missed_ends.fetch(pool)

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
