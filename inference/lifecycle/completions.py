"""The use case: admit -> queue -> stream -> settle. Doors call only this.

A `Generation` is what a door reads from. Its end is settled in the background, whether or not the
door is still there: a client that leaves never takes the accounting with it.
"""

import asyncio
import itertools
import time
from dataclasses import dataclass, field
from typing import Final

import structlog
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import RedisError

from gpu_workers.protocol.clock import read_clock
from gpu_workers.protocol.policy import Caller, ModelPolicy
from gpu_workers.protocol.redis_url import connect_async, connect_async_bounded
from gpu_workers.protocol.refusals import UNKNOWN_MODEL
from gpu_workers.protocol.request_id import new_request_id
from gpu_workers.protocol.tracing import open_tracer
from inference.admission.gate import Admission, Admitted
from inference.dispatch.answers import AlreadyKnown, Assigned, Enqueued, Queued
from inference.dispatch.queue import Dispatch, QueueForecast
from inference.dispatch.worker_registry import WorkerRegistry
from inference.errors import InferenceError, LimitReached, Unavailable
from inference.lifecycle.candidates import CandidateBuilder, Candidates
from inference.lifecycle.generation import Generation
from inference.lifecycle.inference_request import InferenceRequest
from inference.lifecycle.inflight_request import InflightRequest
from inference.lifecycle.saturation import NOT_TAKEN, notice_of, refusal
from inference.lifecycle.settlement import Settlement
from inference.lifecycle.signals import metrics
from inference.lifecycle.signals.request_trace import RequestTrace
from inference.pools import alone
from inference.proofs import Prover
from inference.redis_retry import retry_until
from inference.streaming.frame_hub import FrameHub

_log = structlog.get_logger(__name__)

# How many queues one call of `forecasts` looks at.
MAX_FORECASTS: Final = 32
_REDIS_CONNECTIONS: Final = 64
_REDIS_WAIT_SECONDS: Final = 5


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """What a gateway process is told from outside. Secrets never show in its repr."""

    dispatch_redis_url: str = field(repr=False)
    api_key_pepper: bytes = field(repr=False)
    # Keys that were issued under one of these go on working while the pepper is being changed.
    previous_api_key_peppers: tuple[bytes, ...] = field(repr=False, default=())
    cache_salt_secret: bytes = field(repr=False)
    allowed_origins: tuple[str, ...] = ()
    max_body_bytes: int = 4 * 1024 * 1024
    max_queue_length: int = 1_000
    # What each pool holds of requests at most, waiting and running together.
    max_queue_bytes: int = 256 * 1024 * 1024
    max_requests_per_websocket: int = 64
    drain_seconds: float = 5.0
    # A connection that takes in nothing for so long is ended.
    stall_seconds: float = 30.0
    # A model whose pool no worker was heard of for so long is refused at once; None: it waits.
    worker_expected_seconds: float | None = None
    # Where spans are sent; empty: nothing is traced.
    traces_endpoint: str = field(repr=False, default="")


class Completions:
    """Every request of one gateway process, from admission to settlement."""

    def __init__(self, settings: GatewaySettings) -> None:
        url = settings.dispatch_redis_url
        self._settings = settings
        # redis-py itself would retry for seconds: better a quick 503 than a caller that waits.
        # A burst waits for a connection: the ordinary pool fails the 101st request at once.
        self._redis: Redis = connect_async_bounded(
            url,
            max_connections=_REDIS_CONNECTIONS,
            wait_seconds=_REDIS_WAIT_SECONDS,
            socket_timeout=5,
            socket_connect_timeout=2,
            retry=Retry(ExponentialBackoff(cap=0.2, base=0.02), 2),
        )
        # A client of its own: redis-py's socket timeout would end a blocking read. The hub's
        # supervisor does the retrying.
        self._blocking_redis: Redis = connect_async(
            url, socket_timeout=None, socket_connect_timeout=2, retry=Retry(NoBackoff(), 0)
        )
        self.admission = Admission(
            self._redis,
            pepper=settings.api_key_pepper,
            previous_peppers=settings.previous_api_key_peppers,
        )
        self.dispatch = Dispatch(self._redis)
        self.hub = FrameHub(self._redis, self._blocking_redis)
        self.workers = WorkerRegistry(self._redis)
        self._candidates = CandidateBuilder(
            self.admission,
            self.workers,
            prover=Prover(settings.api_key_pepper, settings.previous_api_key_peppers),
            gateway_id=self.hub.gateway_id,
            cache_salt_secret=settings.cache_salt_secret,
            worker_expected_seconds=settings.worker_expected_seconds,
        )
        self.settlement = Settlement(self.admission, self.dispatch, self.workers, self.hub)
        self.tracer = open_tracer("penstock-gateway", settings.traces_endpoint)
        self._is_stopping = False

    # the life of the process --------------------------------------------------------------------

    async def start(self) -> None:
        """Start, also while Redis is away: requests get 503 until it answers."""
        try:
            await read_clock(self._redis)
            await self.dispatch.load_functions()
        except (RedisError, OSError) as error:
            _log.warning("gateway_starts_without_redis", reason=repr(error))
        await self.admission.start()
        await self.hub.start()
        self.settlement.start()

    async def stop(self) -> None:
        """Cancel what is still open, wait for its end within the drain time, and disconnect."""
        self._is_stopping = True
        await self.settlement.stop(drain_seconds=self._settings.drain_seconds)
        await self.admission.stop()
        await self.hub.stop()
        await self._blocking_redis.aclose()
        await self._redis.aclose()
        if self.tracer is not None:
            await asyncio.to_thread(self.tracer.close)

    async def forecasts(
        self, caller: Caller, models: list[ModelPolicy]
    ) -> dict[str, QueueForecast]:
        """Return what one more request would find in each model's queue, by the model's name; of
        the first `MAX_FORECASTS` pools only."""
        pools = list(dict.fromkeys(model.pool for model in models))[:MAX_FORECASTS]
        found = await asyncio.gather(*(self._forecast(caller, pool) for pool in pools))
        by_pool = dict(zip(pools, found, strict=True))
        return {
            model.name: forecast
            for model in models
            if (forecast := by_pool.get(model.pool)) is not None
        }

    async def _forecast(self, caller: Caller, pool: str) -> QueueForecast | None:
        with alone(pool):
            return await self.dispatch.forecast(pool, caller.tier.service_class, caller.tenant_id)
        return None

    # a request ----------------------------------------------------------------------------------

    async def begin(
        self,
        caller: Caller,
        request: InferenceRequest,
        *,
        request_id: str | None = None,
        traceparent: str = "",
    ) -> Generation:
        """Admit and enqueue a request. Raises an `InferenceError` if it is refused. `traceparent`
        is the client's, well formed, or empty."""
        request_id, trace = request_id or new_request_id(), None
        if self.tracer is not None:
            trace = RequestTrace(self.tracer, request_id, traceparent)
        try:
            return await self._begin(caller, request, request_id, trace)
        except Exception as error:
            if trace is not None:
                trace.refused(error, caller, self.admission.known_model(request.model, caller))
            raise

    def note_refusal(
        self,
        error: InferenceError,
        caller: Caller | None,
        *,
        model: str | None = None,
        request_id: str = "",
        parameter: str | None = None,
        is_completion: bool = True,
    ) -> None:
        """Count a call that was refused, for its tenant, where that is known, and one that asked
        for a completion in the metrics too. `caller` None: it is the one that the error has, if
        any. `model` as the caller names it, None where it was not read; `parameter` is the API's
        name of what is wrong."""
        caller = caller or error.caller
        if error.is_on_record:
            return
        known = (
            None if model is None or caller is None else self.admission.known_model(model, caller)
        )
        if is_completion:
            metrics.refused(error, caller, known)
        if caller is not None:
            name = "" if model is None else known.name if known is not None else UNKNOWN_MODEL
            self.admission.refusals.note(
                error, caller, model=name, request_id=request_id, parameter=parameter
            )

    async def _begin(
        self,
        caller: Caller,
        request: InferenceRequest,
        request_id: str,
        trace: RequestTrace | None,
    ) -> Generation:
        if self._is_stopping:
            raise Unavailable("This gateway is shutting down; try again.", retry_after_seconds=1)
        until = time.monotonic() + caller.tier.max_queue_seconds
        candidates = await retry_until(
            lambda: self._candidates.build(caller, request, request_id),
            until=until,
        )
        admitted = await self._reserve(caller, candidates, until)
        if trace is not None:
            trace.admitted()
            candidates = candidates.traced(trace.traceparent)
        inflight = self.settlement.requests.open(candidates.primary, caller, admitted)
        inflight.trace = trace
        try:
            await self._queue(inflight, candidates, until)
        except InferenceError as error:
            error.headers = admitted.headers
            error.is_on_record = inflight.is_enqueued
            raise
        inflight.is_enqueued = True
        if self._is_stopping:
            self.settlement.cancellations.cancel(inflight)
        metrics.admitted(inflight.envelope)
        return Generation(inflight, self.settlement.cancellations)

    async def _reserve(self, caller: Caller, candidates: Candidates, until: float) -> Admitted:
        """Reserve what covers whichever candidate runs."""
        envelope, fallback = candidates.primary.envelope, candidates.fallback
        tries = itertools.count()
        try:
            return await retry_until(
                lambda: self.admission.reserve(
                    envelope.request_id,
                    caller,
                    envelope.pool,
                    candidates.worst_case,
                    envelope.prices,
                    sequences=envelope.sequences,
                    fallback=None if fallback is None else fallback.target,
                    is_retry=next(tries) > 0,
                ),
                until=until,
            )
        except LimitReached:
            raise
        except BaseException:
            # Whether it is reserved is unknown.
            self.settlement.reservations.release(envelope)
            raise

    async def _queue(self, request: InflightRequest, candidates: Candidates, until: float) -> None:
        """Queue the request where it is taken; raises an `InferenceError` that says for how long it
        is not."""
        fallback, reason = candidates.fallback, candidates.no_fallback_reason
        model = request.envelope.model
        answer = await self._enqueue(request, until)
        if not isinstance(answer, NOT_TAKEN):
            request.notice = notice_of(answer, has_worker=candidates.has_worker)
            return
        if fallback is not None:
            self.settlement.requests.move(request, fallback)
            second = await self._enqueue(request, until)
            if not isinstance(second, NOT_TAKEN):
                request.notice = notice_of(second, instead_of=model)
                return
            reason = f"{fallback.envelope.model}, which answers instead, is saturated too."
        self.settlement.requests.discard(request)
        raise refusal(request.caller, model, answer, because=reason)

    async def _enqueue(self, request: InflightRequest, until: float) -> Enqueued:
        try:
            answer = await retry_until(
                lambda: self.dispatch.enqueue(
                    request.envelope,
                    max_queue_length=self._settings.max_queue_length,
                    max_payload_bytes=self._settings.max_queue_bytes,
                    owed_proof=request.owed_proof,
                    max_load_ms=request.caller.tier.adapter_load_ms_per_minute,
                ),
                until=until,
            )
        except BaseException:
            # Whether it is queued is unknown: its end has to be found out.
            request.is_enqueued = True
            self.settlement.cancellations.cancel(request)
            raise
        if isinstance(answer, Assigned):
            request.stream.note_holder(1, answer.worker_id)
        if isinstance(answer, Assigned | Queued | AlreadyKnown) and answer.is_owed:
            request.note_owed()
        request.is_assigned = isinstance(answer, Assigned) or (
            isinstance(answer, AlreadyKnown) and answer.state == "running"
        )
        return answer
