"""Ends what belongs to a key or a tenant that may not go on: revoked, expired, suspended."""

import asyncio
from typing import Final

from inference.admission.gate import Admission
from inference.background import Background
from inference.lifecycle.cancellation import Cancellations
from inference.lifecycle.inflight_requests import InflightRequests

# How often it is asked whether a caller may go on with what it has open.
ACCESS_SECONDS: Final = 0.5


class AccessWatch:
    """Asks one question for each caller, not for each request."""

    def __init__(
        self, requests: InflightRequests, admission: Admission, cancellations: Cancellations
    ) -> None:
        self._requests = requests
        self._admission = admission
        self._cancellations = cancellations

    def start(self, background: Background) -> None:
        background.supervise(self._watch, name="access")

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(ACCESS_SECONDS)
            callers = {id(each.caller): each.caller for each in self._requests.all()}
            refusals = {
                each: error
                for each, caller in callers.items()
                if (error := await self._admission.refusal_of(caller)) is not None
            }
            if not refusals:
                continue
            for request in self._requests.all():
                error = refusals.get(id(request.caller))
                if error is not None and not request.is_cancelled:
                    self._cancellations.refuse(request, error)
