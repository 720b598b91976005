"""The requests that a worker holds: takes assignments, serves each in a task of its own, aborts."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Final

import structlog
from structlog.contextvars import bind_contextvars

from gpu_workers.adapters.unavailable import AdapterUnavailable, refused, unavailable
from gpu_workers.adapters.worker_adapters import WorkerAdapters
from gpu_workers.cancellation import cancel_and_wait
from gpu_workers.engine import AdapterRefused, EmitText, Engine, EngineDied, Output, Result
from gpu_workers.frames.writer import FrameWriter
from gpu_workers.metrics import WorkerMetrics
from gpu_workers.outbox.outbox import Outbox
from gpu_workers.protocol import codec
from gpu_workers.protocol.codec import WireFormatError
from gpu_workers.protocol.messages import (
    Assignment,
    Cancellation,
    Confirmation,
    Envelope,
    InboxMessage,
    Outcome,
    Preemption,
    Prefetch,
    Resend,
    TokenUsage,
    WireError,
)
from gpu_workers.protocol.text_event import text_event
from gpu_workers.protocol.tracing import Tracer
from gpu_workers.requests.attempt_trace import trace_attempt
from gpu_workers.requests.finisher import Finisher
from gpu_workers.requests.open_request import OpenRequest, failure
from gpu_workers.transport import Progress, Transport

EARLY_CANCELLATIONS_KEPT: Final = 1024
SECONDS_TO_COUNT: Final = 1.0

ENGINE_FAILED: Final = failure(502, "The engine that served this request died.", "engine_failed")
INTERNAL: Final = failure(500, "The worker could not serve this request.", "internal_error")

_log = structlog.get_logger("gpu_workers.requests.open_requests")


class OpenRequests:
    """The requests that a worker holds. `on_engine_died` is called when the engine dies during a
    request; `on_lost_by_redis` when Redis has lost one, and returns once the worker is registered
    again."""

    def __init__(
        self,
        *,
        engine: Engine,
        adapters: WorkerAdapters,
        transport: Transport,
        outbox: Outbox,
        metrics: WorkerMetrics,
        worker_id: str,
        on_engine_died: Callable[[EngineDied], None],
        on_lost_by_redis: Callable[[], Awaitable[None]],
        tracer: Tracer | None = None,
    ) -> None:
        self._engine = engine
        self._tracer = tracer
        self._adapters = adapters
        self._on_engine_died = on_engine_died
        self._open: dict[str, OpenRequest] = {}
        self._cancelled_early: dict[tuple[str, int], None] = {}
        self._aborts: set[asyncio.Task[None]] = set()
        self._frames = FrameWriter(
            transport.redis,
            pool=transport.pool_name,
            worker_id=worker_id,
            on_gateway_lost=self.abort_gateway,
            on_flush=metrics.flushed,
        )
        self._finisher = Finisher(
            transport=transport,
            outbox=outbox,
            frames=self._frames,
            metrics=metrics,
            worker_id=worker_id,
            on_lost_by_redis=on_lost_by_redis,
        )

    def __len__(self) -> int:
        return len(self._open)

    @property
    def sequences(self) -> int:
        """Return how many sequences the requests have together."""
        return sum(request.envelope.sequences for request in self._open.values())

    @property
    def unbilled_tokens(self) -> int:
        """Return how many tokens were generated for requests that leave no record."""
        return self._finisher.unbilled_tokens

    def progress(self) -> list[Progress]:
        """Return the progress of each request that has any output yet."""
        return [
            Progress(
                request_id=request_id,
                attempt=request.attempt,
                prompt_tokens=request.prompt_tokens,
                completion_tokens=request.completion_tokens,
                sequences=request.envelope.sequences,
            )
            for request_id, request in self._open.items()
            if request.completion_tokens
        ]

    def held(self) -> list[tuple[Envelope, int]]:
        """Return each request that is under way, with its attempt."""
        return [(request.envelope, request.attempt) for request in self._open.values()]

    def gateways(self) -> set[str]:
        return {request.envelope.gateway_id for request in self._open.values()}

    def take(self, message: InboxMessage) -> None:
        """Act on a message of the inbox or of a claim. A repetition is no error."""
        if isinstance(message, Cancellation):
            self._cancel(message)
        elif isinstance(message, Preemption):
            self._preempt(message)
        elif isinstance(message, Resend):
            request = self._open.get(message.request_id)
            is_open = request is not None and request.attempt == message.attempt
            self._frames.resend(message, is_open=is_open)
        elif isinstance(message, Confirmation):
            self._frames.confirm(message)
        elif isinstance(message, Prefetch):
            self._adapters.prefetch(message.adapter)
        elif isinstance(message, Assignment):
            self._assign(message)

    def abort_all(self, error: WireError) -> None:
        """End every request for a reason of the worker's own, which its client gets."""
        for request in self._open.values():
            request.stopped_by_worker = error
            self._abort(request)

    def disown(self, attempts: Iterable[tuple[str, int]]) -> None:
        """Abort attempts whose requests another worker has by now; report no end of theirs."""
        for request_id, attempt in attempts:
            request = self._open.get(request_id)
            if request is not None and request.attempt == attempt:
                self._disown(request)

    def _disown(self, request: OpenRequest) -> None:
        _log.warning(
            "request_disowned", request_id=request.envelope.request_id, attempt=request.attempt
        )
        request.is_disowned = True
        self._abort(request)

    def abort_gateway(self, gateway_id: str) -> None:
        """End the requests of a gateway that is gone."""
        self._frames.drop(gateway_id)
        for request in self._open.values():
            if request.envelope.gateway_id == gateway_id:
                request.mark_cancelled()
                self._abort(request)

    async def wait_until_empty(self, seconds: float, *, until: asyncio.Event | None = None) -> None:
        """Wait until the last has ended, the time is over, or `until` is set."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        until_set = asyncio.create_task((until or asyncio.Event()).wait(), name="until")
        try:
            while self._open and not until_set.done() and loop.time() < deadline:
                await asyncio.wait(
                    [*self._tasks(), until_set],
                    timeout=deadline - loop.time(),
                    return_when=asyncio.FIRST_COMPLETED,
                )
        finally:
            until_set.cancel()

    async def give_up(self) -> None:
        """End what the dead engine itself did not end. An engine may take the cancellation for one
        by the client; it then ends the request here, for what is noted before."""
        left = list(self._open.values())
        for request in left:
            request.stopped_by_worker = ENGINE_FAILED
        await cancel_and_wait(self._tasks())
        for request in left:
            if not request.is_ended:
                await self._finisher.end(request, request.failed(ENGINE_FAILED))

    async def flush(self, seconds: float) -> None:
        """Wait until the gateways' frames are written. Raises `TimeoutError` after `seconds`."""
        await self._frames.drain(seconds)

    async def close(self) -> None:
        """Abort what is still open: it belongs to another worker by now, or will."""
        for request in self._open.values():
            self._disown(request)
        try:
            await self.wait_until_empty(SECONDS_TO_COUNT)
        finally:
            await cancel_and_wait([*self._tasks(), *self._aborts])
            await self._frames.close()

    def _tasks(self) -> "list[asyncio.Task[None]]":
        return [request.task for request in self._open.values() if request.task is not None]

    def _assign(self, assignment: Assignment) -> None:
        held = self._open.get(assignment.request_id)
        if held is not None and held.attempt >= assignment.attempt:
            return
        try:
            envelope = codec.decode_envelope(assignment.envelope)
        except WireFormatError as error:
            _log.error("envelope_dropped", request_id=assignment.request_id, error=str(error))
            return
        request = OpenRequest(
            envelope=envelope,
            attempt=assignment.attempt,
            token_ids=list(envelope.resumed_token_ids),
        )
        self._open[envelope.request_id] = request
        name = f"request:{envelope.request_id}"
        if held is None or held.task is None:
            request.task = asyncio.create_task(self._serve(request), name=name)
        else:
            # An engine knows a request by its id alone: the one that is over has to be out of it.
            self._disown(held)
            request.task = asyncio.create_task(self._serve_after(held.task, request), name=name)

    def _cancel(self, cancellation: Cancellation) -> None:
        request = self._open.get(cancellation.request_id)
        if request is not None and request.attempt == cancellation.attempt:
            request.mark_cancelled()
            self._abort(request)
            return
        # The answer of a claim may come later than a cancellation that was sent after it.
        self._cancelled_early[cancellation.request_id, cancellation.attempt] = None
        if len(self._cancelled_early) > EARLY_CANCELLATIONS_KEPT:
            self._cancelled_early.pop(next(iter(self._cancelled_early)))

    def _preempt(self, preemption: Preemption) -> None:
        request = self._open.get(preemption.request_id)
        if request is not None and request.attempt == preemption.attempt:
            request.is_preempted = True
            self._abort(request)

    def _abort(self, request: OpenRequest) -> None:
        if not request.is_aborted:
            request.is_aborted = True
            if request.aborted is not None and not request.aborted.done():
                request.aborted.set_result(None)
            abort = asyncio.create_task(self._engine.abort(request.envelope.request_id))
            self._aborts.add(abort)
            abort.add_done_callback(self._aborts.discard)

    async def _serve_after(self, earlier: "asyncio.Task[None]", request: OpenRequest) -> None:
        await asyncio.wait([earlier])
        await self._serve(request)

    async def _serve(self, request: OpenRequest) -> None:
        # The task is this attempt's own: whatever logs in it, the engine's side too, says whose.
        bind_contextvars(request_id=request.envelope.request_id, attempt=request.attempt)
        try:
            result = await self._generate(request)
            generated_ns = time.monotonic_ns()
            await self._finisher.end(request, result)
            request.is_ended = True
            if self._tracer is not None:
                trace_attempt(self._tracer, request, result, generated_ns)
        except Exception:  # noqa: BLE001 - one request must not end the others
            _log.exception("request_not_finished", request_id=request.envelope.request_id)
        finally:
            self._frames.end(request.envelope.request_id, request.attempt)
            if self._open.get(request.envelope.request_id) is request:
                del self._open[request.envelope.request_id]

    async def _generate(self, request: OpenRequest) -> Result:
        envelope = request.envelope
        if (envelope.request_id, request.attempt) in self._cancelled_early:
            del self._cancelled_early[envelope.request_id, request.attempt]
            return Result(outcome=Outcome.CANCELLED, usage=TokenUsage())
        result: Result | None = None
        try:
            async with self._adapter_of(request):
                if request.aborted is not None and request.is_aborted:
                    # Before the engine knew it
                    cancelled = Result(outcome=Outcome.CANCELLED, usage=TokenUsage())
                    return request.final_result(cancelled)
                generate = self._engine.generate(envelope, partial(self._begin_texts, request))
                async for item in generate:
                    if type(item) is Output:
                        self._frames.append(envelope.gateway_id, request.delta(item))
                    elif type(item) is Result:
                        result = request.final_result(item)
        except EngineDied as error:
            self._on_engine_died(error)
            request.stopped_by_worker = ENGINE_FAILED
            return request.failed(ENGINE_FAILED, error.usage)
        except AdapterUnavailable as error:
            request.is_without_adapters = error.is_any
            return request.failed(unavailable(envelope.adapter_name))
        except AdapterRefused:
            return request.failed(refused(envelope.adapter_name))
        except Exception:  # noqa: BLE001 - a fault of the engine adapter; the client gets an error
            _log.exception("engine_raised", request_id=envelope.request_id)
        return result or request.failed(INTERNAL)

    def _adapter_of(self, request: OpenRequest) -> "AbstractAsyncContextManager[None, bool | None]":
        """Return what keeps a request's adapter loaded; one without needs nothing."""
        if not request.envelope.adapter:
            return nullcontext()
        request.aborted = asyncio.get_running_loop().create_future()
        if request.is_aborted:
            request.aborted.set_result(None)
        return self._adapters.use(request.envelope.adapter, request.aborted)

    def _begin_texts(self, request: OpenRequest, form: tuple[bytes, bytes]) -> EmitText:
        """Return what sends texts to a gateway, or whole events to one of an earlier version."""
        gateway_id, append = request.envelope.gateway_id, self._frames.append
        text_delta = request.text_delta
        request.form = form

        def emit_text(text: str, completion_tokens: int, token_ids: list[int]) -> None:
            append(gateway_id, text_delta(text, completion_tokens, token_ids))

        def emit_event(text: str, completion_tokens: int, token_ids: list[int]) -> None:
            output = Output(
                chunks=[text_event(form, text)],
                completion_tokens=completion_tokens,
                token_ids=token_ids,
            )
            append(gateway_id, request.delta(output))

        return emit_text if request.envelope.reads_texts else emit_event
