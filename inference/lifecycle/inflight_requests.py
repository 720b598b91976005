"""The open requests of one gateway process: each has a stream from before it is queued, and leaves
with its end, which settles its reservation."""

import asyncio
import time
from collections import defaultdict
from functools import partial
from typing import Final

from gpu_workers.protocol.messages import Envelope, Terminal
from gpu_workers.protocol.policy import Caller
from inference.admission.gate import Admitted
from inference.charges import NOTHING, Charge
from inference.lifecycle.candidates import Candidate
from inference.lifecycle.inflight_request import InflightRequest
from inference.lifecycle.reservation_settler import ReservationSettler
from inference.lifecycle.signals import metrics
from inference.streaming.frame_hub import FrameHub
from inference.streaming.token_stream import TokenStream

# A pool is watched for so long after its last request here: what that left may yet turn up in it,
# and what the finisher put on record is kept to be recorded again.
WATCHED_SECONDS: Final = 120.0


class InflightRequests:
    """The registry. Ends come to it from the streams; it calls nobody who looks into it."""

    def __init__(self, hub: FrameHub, reservations: ReservationSettler) -> None:
        self._unfilled: asyncio.Queue[InflightRequest] = asyncio.Queue()
        self._hub = hub
        self._reservations = reservations
        self._open: dict[str, InflightRequest] = {}
        self._in_pool: defaultdict[str, dict[str, InflightRequest]] = defaultdict(dict)
        self._left_at: dict[str, float] = {}  # pools that have nothing open since (monotonic)
        self._all_ended = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def pools(self) -> list[str]:
        """Return the pools that have to be watched: those with an open request of this gateway,
        and those that had one in the last `WATCHED_SECONDS`."""
        since = time.monotonic() - WATCHED_SECONDS
        self._left_at = {pool: at for pool, at in self._left_at.items() if at > since}
        return [*self._in_pool, *self._left_at]

    def all(self) -> list[InflightRequest]:
        return list(self._open.values())

    def in_pool(self, pool: str) -> list[InflightRequest]:
        return list(self._in_pool.get(pool, {}).values())

    def get(self, request_id: str) -> InflightRequest | None:
        """Return the open request of this id; None if it is not, or no longer, this gateway's."""
        return self._open.get(request_id)

    def open(self, candidate: Candidate, caller: Caller, admitted: Admitted) -> InflightRequest:
        """Take up a request that has been admitted and is about to be enqueued."""
        envelope = candidate.envelope
        request = InflightRequest(candidate, caller, admitted, self._open_stream(envelope))
        self._open[envelope.request_id] = request
        self._enter(request)
        return request

    def move(self, request: InflightRequest, candidate: Candidate) -> None:
        """Take a request from the pool that did not take it to another one's."""
        self._hub.close(request.request_id)
        self._leave(request)
        request.move(candidate, self._open_stream(candidate.envelope))
        self._enter(request)

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
        request = self._open.get(terminal.request_id)
        if request is not None:
            seconds = time.monotonic() - request.started_at
            metrics.ended(request.envelope, terminal.outcome, seconds)
            if request.trace is not None:
                request.trace.ended(request.envelope, terminal)
            self._close(request, request.charge_of(terminal))

    def _close(self, request: InflightRequest, charge: Charge) -> None:
        if self._open.pop(request.request_id, None) is None:
            return
        request.is_open = False
        self._leave(request)
        self._hub.close(request.request_id)
        self._reservations.settle(request, charge)
        if not self._open:
            self._all_ended.set()

    def _enter(self, request: InflightRequest) -> None:
        pool = request.envelope.pool
        self._in_pool[pool][request.request_id] = request
        self._left_at.pop(pool, None)

    def _leave(self, request: InflightRequest) -> None:
        pool = request.envelope.pool
        self._in_pool[pool].pop(request.request_id, None)
        if not self._in_pool[pool]:
            del self._in_pool[pool]
            self._left_at[pool] = time.monotonic()

    def _prompt_counted(self, request_id: str) -> None:
        request = self._open.get(request_id)
        if request is not None and request.has_one_prompt:
            self._reservations.true_down(request)

    def _gap_unfilled(self, request_id: str) -> None:
        request = self._open.get(request_id)
        if request is not None:
            self._unfilled.put_nowait(request)
