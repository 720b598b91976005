"""Requests that a gateway finishes in their worker's place: first on record, then for readers."""

import time
from collections import deque
from typing import Final

import structlog
from redis.exceptions import ResponseError

from gpu_workers.protocol.codec import WireFormatError
from gpu_workers.protocol.messages import Outcome
from gpu_workers.protocol.redis_errors import is_transient
from gpu_workers.protocol.usage import UsageEntry
from inference.dispatch.queue import Dispatch
from inference.errors import InferenceError
from inference.lifecycle.inflight_request import InflightRequest
from inference.lifecycle.reservation_settler import UNSETTLED
from inference.lifecycle.signals import metrics
from inference.lifecycle.terminals import (
    cancelled,
    entry_of,
    missed_terminal_of,
    terminal_of,
    worker_lost,
)

_log = structlog.get_logger(__name__)

# What ending one request may raise that is of that request alone, unless it is transient.
UNENDABLE: Final = (ResponseError, WireFormatError)
_MOST_SET_ASIDE: Final = 1000

# A gateway has no outbox: it keeps what it finished itself while the collector may be late.
KEPT_SECONDS: Final = 120.0
MAX_KEPT: Final = 20_000


class Finisher:
    """Finishes requests, and remembers for a while what it put on record."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._set_aside: set[str] = set()
        self._finished: deque[tuple[float, UsageEntry]] = deque(maxlen=MAX_KEPT)

    async def finish(
        self,
        request: InflightRequest,
        attempt: int,
        outcome: Outcome,
        error: InferenceError,
        *,
        is_dead_letter: bool = False,
    ) -> None:
        """Finish a request, if it is still this gateway's to finish."""
        envelope, resumed = request.envelope, 0
        if envelope.is_resumable:
            resumed = await self._dispatch.resumed_of(envelope.pool, envelope.request_id)
        entry = entry_of(request, attempt, outcome, error, resumed=resumed)
        if await self._dispatch.finish(entry, is_dead_letter=is_dead_letter):
            self._remember(entry, request)
            request.stream.end(terminal_of(request, outcome, error))

    async def fail_unrecoverable(self, request: InflightRequest) -> None:
        """Finish a request that Redis has lost and that cannot go on, on record all the same."""
        outcome = Outcome.CANCELLED if request.is_cancelled else Outcome.FAILED
        error = cancelled() if request.is_cancelled else worker_lost()
        entry = entry_of(request, request.stream.attempt, outcome, error)
        # Somebody may have ended it, or taken it up, in the meantime.
        if await self._dispatch.finish(entry, may_be_lost=True):
            self._remember(entry, request)
            request.stream.end(terminal_of(request, outcome, error))

    async def finish_as_recorded(self, request: InflightRequest) -> None:
        """End a request whose own end did not come: its reader misses that, but pays what the
        record says."""
        envelope = request.envelope
        record = await self._dispatch.record_of(envelope.pool, envelope.request_id)
        if record is None:
            await self.fail_unrecoverable(request)
        else:
            request.stream.end(missed_terminal_of(request, record))

    def set_aside(self, request_id: str, error: Exception) -> None:
        """Let a request that cannot be ended keep no other from its end; raises the error where it
        is transient. Each is counted and logged once, however often it is tried."""
        if is_transient(error):
            raise error
        if request_id in self._set_aside:
            return
        if len(self._set_aside) >= _MOST_SET_ASIDE:
            self._set_aside.clear()
        self._set_aside.add(request_id)
        UNSETTLED.inc()
        _log.error("request_not_ended", request_id=request_id, reason=str(error))

    async def record_again(self, pool: str) -> None:
        """Put on record once more what was finished here lately, in a Redis that has lost it. The
        collector knows what it has by its request id."""
        for _, entry in list(self._finished):
            if entry.pool == pool:
                await self._dispatch.finish(entry, may_be_lost=True)

    def _remember(self, entry: UsageEntry, request: InflightRequest) -> None:
        metrics.recorded(entry, request.envelope)
        now = time.monotonic()
        self._finished.append((now, entry))
        while self._finished[0][0] < now - KEPT_SECONDS:
            self._finished.popleft()
