"""What requests have reserved: trued down while they run, settled at their end, released if they
never ran. All of it in the background, whether or not anybody waits for the request."""

import asyncio
from collections.abc import Iterable
from typing import Final

import structlog
from prometheus_client import Counter

from gpu_workers.protocol.messages import Envelope
from inference.admission.gate import Admission
from inference.admission.reservations import Correction, FailedCorrection
from inference.background import Background
from inference.charges import NOTHING, Charge
from inference.lifecycle.inflight_request import InflightRequest

_log = structlog.get_logger(__name__)

# True-downs gather for so long; a request that has ended by then needs none.
TRUE_DOWN_SECONDS: Final = 0.2

UNSETTLED: Final = Counter(
    "penstock_gateway_unsettled_total",
    "Reservations that could not be settled, and requests that could not be ended.",
)


class ReservationSettler:
    """The reservations of one gateway process."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._to_settle: asyncio.Queue[Correction] = asyncio.Queue()
        self._to_true_down: dict[str, InflightRequest] = {}

    def start(self, background: Background) -> None:
        background.supervise(self._settle_all, name="reservations")
        background.supervise(self._true_down_all, name="true-downs")

    async def join(self) -> None:
        """Return when nothing is left to settle."""
        await self._to_settle.join()

    def true_down(self, request: InflightRequest) -> None:
        """Reserve less than the worst case, soon: the worker has counted the prompt."""
        self._to_true_down[request.request_id] = request

    def settle(self, request: InflightRequest, charge: Charge) -> None:
        """Settle the reservation of a request that has ended, soon."""
        self._to_true_down.pop(request.request_id, None)
        self._settle(request.envelope, charge)

    def release(self, envelope: Envelope) -> None:
        """Release what a request that was not run has reserved, soon; there may be nothing."""
        self._settle(envelope, NOTHING)

    async def restore(self, requests: Iterable[InflightRequest]) -> None:
        """Reserve once more for open requests, in a Redis that has lost what they reserved."""
        held = list(requests)
        await asyncio.gather(
            *(
                self._admission.restore(
                    each.request_id, each.caller, each.envelope.pool, each.admitted
                )
                for each in held
            )
        )
        for request in held:
            if not request.is_open:  # it ended meanwhile
                self.release(request.envelope)

    def _settle(self, envelope: Envelope, charge: Charge) -> None:
        self._to_settle.put_nowait(
            Correction(tenant_id=envelope.tenant_id, request_id=envelope.request_id, charge=charge)
        )

    async def _settle_all(self) -> None:
        """Settle all that have gathered in one round trip. They stay as they are while a lost Redis
        is told what tenants have used: what was settled into that would be taken for a part of
        it."""
        while True:
            batch = [await self._to_settle.get()]
            while not self._to_settle.empty():
                batch.append(self._to_settle.get_nowait())
            try:
                await self._admission.wait_for_policy()
                for failed in await self._admission.settle(batch):
                    _set_aside(failed)
            except BaseException:
                for correction in batch:
                    self._to_settle.put_nowait(correction)
                raise
            finally:
                for _ in batch:
                    self._to_settle.task_done()

    async def _true_down_all(self) -> None:
        """True down what has gathered; what is lost here is made up for at the request's end."""
        while True:
            await asyncio.sleep(TRUE_DOWN_SECONDS)
            counted, self._to_true_down = self._to_true_down, {}
            if counted:
                await self._admission.true_down(
                    Correction(
                        tenant_id=each.envelope.tenant_id,
                        request_id=each.request_id,
                        charge=each.trued_down(),
                    )
                    for each in counted.values()
                )


def _set_aside(failed: FailedCorrection) -> None:
    """Leave a reservation that cannot be settled to the sweeper and to fsck."""
    UNSETTLED.inc()
    _log.error(
        "reservation_not_settled",
        request_id=failed.correction.request_id,
        tenant_id=failed.correction.tenant_id,
        reason=failed.reason,
    )
