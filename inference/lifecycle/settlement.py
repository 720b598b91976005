"""The end of every admitted request, settled whether or not its client is still there.

Each part holds those below that it asks for something; none is called back by one of them:

    StrandedWatch, AccessWatch       look at all that is in flight
    Recovery, WorkerReplacement      let a request go on elsewhere
    MissedEnds                       fetch an end that did not come
    Cancellations                    ask for its end
    Finisher                         finish it in its worker's place
    InflightRequests                 the registry: the end of its stream closes a request
    ReservationSettler               settle what it had reserved
    InflightRequest                  its state, which asks nobody
"""

import asyncio

import structlog

from inference.admission.gate import Admission
from inference.background import Background
from inference.dispatch.queue import Dispatch
from inference.dispatch.worker_registry import WorkerRegistry
from inference.lifecycle.access_watch import AccessWatch
from inference.lifecycle.cancellation import Cancellations
from inference.lifecycle.finisher import Finisher
from inference.lifecycle.inflight_requests import InflightRequests
from inference.lifecycle.missed_ends import MissedEnds
from inference.lifecycle.pool_epochs import PoolEpochs
from inference.lifecycle.recovery import Recovery
from inference.lifecycle.reservation_settler import ReservationSettler
from inference.lifecycle.stranded_watch import StrandedWatch
from inference.lifecycle.worker_replacement import WorkerReplacement
from inference.streaming.frame_hub import FrameHub

_log = structlog.get_logger(__name__)


class Settlement:
    """Composes what follows the open requests of one process, until each has ended and its
    reservation is settled."""

    def __init__(
        self, admission: Admission, dispatch: Dispatch, workers: WorkerRegistry, hub: FrameHub
    ) -> None:
        background = self._background = Background()
        self.reservations = ReservationSettler(admission)
        self.requests = InflightRequests(hub, self.reservations)
        finisher = Finisher(dispatch)
        self.cancellations = Cancellations(dispatch, finisher, background)
        epochs = PoolEpochs(dispatch)
        self._replacement = WorkerReplacement(self.requests, dispatch, finisher, epochs, background)
        recovery = Recovery(
            self.requests,
            self.reservations,
            finisher,
            self.cancellations,
            epochs,
            admission,
            dispatch,
            background,
        )
        self._stranded_watch = StrandedWatch(
            self.requests,
            finisher,
            self.cancellations,
            self._replacement,
            recovery,
            MissedEnds(self.requests, finisher, dispatch, workers, hub),
            dispatch,
            hub.gateway_id,
        )
        self._access_watch = AccessWatch(self.requests, admission, self.cancellations)

    def start(self) -> None:
        self._stranded_watch.start(self._background)
        self._replacement.start()
        self._access_watch.start(self._background)
        self.reservations.start(self._background)

    async def stop(self, *, drain_seconds: float) -> None:
        """Cancel what is still open and wait for its end, but no longer than the drain time."""
        for request in self.requests.all():
            self.cancellations.cancel(request)
        try:
            async with asyncio.timeout(drain_seconds):
                await self.requests.wait_until_empty()
                await self.reservations.join()
        except TimeoutError:
            _log.warning("gateway_stops_with_open_requests", requests=len(self.requests))
        await self._background.stop()
