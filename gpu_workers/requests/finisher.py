"""Ends attempts: with `finish` before the gateway hears of it, or by handing the request back."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import structlog

from gpu_workers.engine import Result
from gpu_workers.finish import Accepted, Refused, UnknownRequest
from gpu_workers.frames.writer import FrameWriter
from gpu_workers.metrics import WorkerMetrics
from gpu_workers.outbox.disk import OutboxUnwritable
from gpu_workers.outbox.outbox import Outbox
from gpu_workers.outbox.waste import waste_entry
from gpu_workers.protocol import codec, stream_fields
from gpu_workers.protocol.messages import Envelope, Requeued, Terminal
from gpu_workers.protocol.usage import UsageEntry
from gpu_workers.requests.open_request import OpenRequest, failure
from gpu_workers.transport import Transport

ATTEMPTS_EXHAUSTED: Final = failure(
    502, "Every worker that took this request died with it.", "attempts_exhausted"
)

_log = structlog.get_logger("gpu_workers.requests.finisher")


class Finisher:
    """Puts every token of every attempt on record once. `on_lost_by_redis` is called when Redis has
    lost a request; it returns once the worker is registered again."""

    def __init__(
        self,
        *,
        transport: Transport,
        outbox: Outbox,
        frames: FrameWriter,
        metrics: WorkerMetrics,
        worker_id: str,
        on_lost_by_redis: Callable[[], Awaitable[None]],
    ) -> None:
        self._transport = transport
        self._outbox = outbox
        self._frames = frames
        self._metrics = metrics
        self._worker_id = worker_id
        self._on_lost_by_redis = on_lost_by_redis
        # Generated for requests that operators ran once more, which leave no record
        self.unbilled_tokens = 0

    async def end(self, request: OpenRequest, result: Result) -> None:
        """Let another attempt resume where the client need not notice, else finish."""
        reason = None if request.is_disowned else request.retry_reason(result)
        if reason is None:
            await self._finish(request, result)
            return
        envelope = request.envelope
        # The next attempt's frames must come after all of this one's.
        await self._frames.wait_written(envelope.gateway_id)
        resumption = request.resumption(result)
        answer = await self._transport.requeue(
            envelope.request_id, request.attempt, reason, resumption
        )
        if answer is Requeued.EXHAUSTED and reason != "adapters_unavailable":
            exhausted = request.failed(ATTEMPTS_EXHAUSTED, result.usage)
            await self._finish(request, exhausted, is_dead_letter=True)
        elif answer is not Requeued.REQUEUED:
            # Nobody else may have its adapter, and it failed for want of that; or it was cancelled
            # in the meantime, or is another's by now: `finish` knows.
            await self._finish(request, result)
        else:
            self._metrics.requeued(reason)
            # Without a new envelope the next attempt begins where this one did.
            resumed = request.resumed if resumption is None else len(resumption.resumed_token_ids)
            await self._record_waste(request, result, resumed, reason)

    async def _finish(
        self, request: OpenRequest, result: Result, *, is_dead_letter: bool = False
    ) -> None:
        entry = self._entry_of(request, result)
        if request.is_disowned:
            await self._leave_in_doubt(request, entry)
            return
        seq, terminal = await self._put(request, entry), request.terminal(result)
        try:
            answer = await self._decide(
                request, entry, terminal, seq, is_dead_letter=is_dead_letter
            )
        except Exception:
            if seq is not None:
                self._outbox.mark_in_doubt(seq)  # for the relay to offer again
            raise
        if isinstance(answer, Accepted):
            if seq is not None:
                self._outbox.mark_appended(seq, answer.stream_id)
            envelope = request.envelope
            self._frames.append_end(
                envelope.gateway_id, terminal, is_kept=envelope.reads_last_frames
            )
            self._metrics.ended(entry, envelope, request.seconds_per_token())
            return
        self._metrics.stale_finishes.inc()
        _log.warning("finish_was_stale", request_id=entry.request_id, attempt=entry.attempt)
        if seq is not None:
            self._settle_refused(request, entry, seq, answer)

    def _entry_of(self, request: OpenRequest, result: Result) -> UsageEntry:
        """Build the usage entry; once per attempt, as this counts unbilled tokens."""
        entry = request.usage_entry(result, self._worker_id)
        if not entry.is_billed:
            self.unbilled_tokens += entry.generated_tokens or 0
        return entry

    async def _put(self, request: OpenRequest, entry: UsageEntry) -> int | None:
        """Write the record to disk before anybody else hears of it; return its number. If the disk
        refuses, return None: no client loses its answer, Redis alone has the record, and the worker
        takes no new requests."""
        try:
            return await self._outbox.put(
                stream_fields.USAGE_FIELD,
                codec.encode(entry),
                gateway_id=request.envelope.gateway_id,
                resumed=request.resumed,
            )
        except OutboxUnwritable:
            return None

    async def _decide(
        self,
        request: OpenRequest,
        entry: UsageEntry,
        terminal: Terminal,
        seq: int | None,
        *,
        is_dead_letter: bool,
    ) -> Accepted | Refused | None:
        """Ask Redis whether the attempt ends its request; if so, what its gateway does not have yet
        is kept there. None if Redis still does not know the request after this worker has
        registered again."""
        origin = "" if seq is None else self._outbox.origin(seq)
        for has_registered_again in (False, True):
            try:
                return await self._transport.finish(
                    entry,
                    origin=origin,
                    is_dead_letter=is_dead_letter,
                    last_frames=self._last_frames(request.envelope, terminal),
                )
            except UnknownRequest:
                if has_registered_again or request.is_disowned:
                    return None
                await self._on_lost_by_redis()
        return None

    def _last_frames(self, envelope: Envelope, terminal: Terminal) -> bytes:
        if not envelope.reads_last_frames:
            return b""
        return self._frames.last_frames(envelope.gateway_id, terminal)

    def _settle_refused(
        self, request: OpenRequest, entry: UsageEntry, seq: int, answer: Refused | None
    ) -> None:
        """Record as waste what this attempt generated besides: another one has ended the request,
        or will. Without an answer, leave the row in doubt."""
        if answer is None:
            self._outbox.mark_in_doubt(seq)
            return
        counted = answer.counted_elsewhere
        waste = waste_entry(entry, request.resumed if counted is None else counted, answer.reason)
        if waste is None:
            self._outbox.forget([seq])
        else:
            self._metrics.wasted(waste)
            self._outbox.replace(seq, stream_fields.WASTE_FIELD, codec.encode(waste))

    async def _record_waste(
        self, request: OpenRequest, result: Result, counted_elsewhere: int, reason: str
    ) -> None:
        """Record the waste of an attempt whose request continues in another one."""
        entry = self._entry_of(request, result)
        waste = waste_entry(entry, counted_elsewhere, reason)
        if waste is not None:
            self._metrics.wasted(waste)
            with suppress(OutboxUnwritable):
                await self._outbox.put_settled(stream_fields.WASTE_FIELD, codec.encode(waste))

    async def _leave_in_doubt(self, request: OpenRequest, entry: UsageEntry) -> None:
        """Leave the attempt's tokens to whoever relays the outbox, to find out who counts them."""
        if not entry.generated_tokens:
            return
        with suppress(OutboxUnwritable):
            seq = await self._outbox.put(
                stream_fields.WASTE_FIELD,
                codec.encode(entry),
                gateway_id="",
                resumed=request.resumed,
            )
            self._outbox.mark_in_doubt(seq)
