"""The open requests of one gateway process: each has a stream from before it is queued, and leaves
with its end, which settles its reservation."""

import asyncio
from functools import partial
from typing import Final

from prometheus_client import Counter

from gpu_workers.protocol.messages import Envelope, Terminal
from gpu_workers.protocol.policy import Caller
from inference.admission.gate import Admitted
from inference.charges import NOTHING, Charge
from inference.lifecycle.candidates import Candidate
from inference.lifecycle.inflight_request import InflightRequest
from inference.lifecycle.reservation_settler import ReservationSettler
from inference.streaming.frame_hub import FrameHub
from inference.streaming.token_stream import TokenStream

ENDED: Final = Counter(
    "penstock_gateway_ended_total", "Admitted requests by how they ended.", ["outcome"]
)


class InflightRequests:
    """The registry. Ends come to it from the streams; it calls nobody who looks into it."""

    def __init__(self, hub: FrameHub, reservations: ReservationSettler) -> None:
        self._unfilled: asyncio.Queue[InflightRequest] = asyncio.Queue()
        self._hub = hub
        self._reservations = reservations
        self._open: dict[str, InflightRequest] = {}
        self._pools: set[str] = set()
        self._all_ended = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def pools(self) -> list[str]:
        """Return every pool that a request of this gateway has gone to."""
        return list(self._pools)

    def all(self) -> list[InflightRequest]:
        return list(self._open.values())

    def in_pool(self, pool: str) -> list[InflightRequest]:
        return [each for each in self._open.values() if each.envelope.pool == pool]

    def get(self, request_id: str) -> InflightRequest | None:
        """Return the open request of this id; None if it is not, or no longer, this gateway's."""
        return self._open.get(request_id)

    def open(self, candidate: Candidate, caller: Caller, admitted: Admitted) -> InflightRequest:
        """Take up a request that has been admitted and is about to be enqueued."""
        envelope = candidate.envelope
        request = InflightRequest(candidate, caller, admitted, self._open_stream(envelope))
        self._open[envelope.request_id] = request
        self._pools.add(envelope.pool)
        return request

    def move(self, request: InflightRequest, candidate: Candidate) -> None:
        """Take a request from the pool that did not take it to another one's."""
        self._hub.close(request.request_id)
        request.move(candidate, self._open_stream(candidate.envelope))
        self._pools.add(candidate.envelope.pool)

    def discard(self, request: InflightRequest) -> None:
        """Drop a request that the queue did not take."""
        self._close(request, NOTHING)

    async def next_unfilled(self) -> InflightRequest:
        """Wait for a request of which output is missing that its worker has not kept. Its stream
        takes in nothing until it is released."""
        return await self._unfilled.get()

    async def wait_until_empty(self) -> None:
        while self._open:
            self._all_ended.clear()
            await self._all_ended.wait()

    def _open_stream(self, envelope: Envelope) -> TokenStream:
        request_id = envelope.request_id
        return self._hub.open(
            request_id,
            self._end,
            partial(self._prompt_counted, request_id),
            pool=envelope.pool,
            on_unfilled=partial(self._gap_unfilled, request_id),
            keeps_token_ids=envelope.stream and envelope.is_resumable,
        )

    def _end(self, terminal: Terminal) -> None:
        """Settle a request whose end has come, from a worker or from this gateway in its place."""
        ENDED.labels(terminal.outcome.value).inc()
        request = self._open.get(terminal.request_id)
        if request is not None:
            self._close(request, request.charge_of(terminal))

    def _close(self, request: InflightRequest, charge: Charge) -> None:
        if self._open.pop(request.request_id, None) is None:
            return
        request.is_open = False
        self._hub.close(request.request_id)
        self._reservations.settle(request, charge)
        if not self._open:
            self._all_ended.set()

    def _prompt_counted(self, request_id: str) -> None:
        request = self._open.get(request_id)
        if request is not None and request.has_one_prompt:
            self._reservations.true_down(request)

    def _gap_unfilled(self, request_id: str) -> None:
        request = self._open.get(request_id)
        if request is not None:
            self._unfilled.put_nowait(request)
