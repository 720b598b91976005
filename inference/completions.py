"""The use case: admit -> queue -> stream -> settle. Doors call only this.

A `Generation` is what a door reads from. Its end is settled here, in the background, whether or
not the door is still there: a client that leaves never takes the accounting with it.
"""

import asyncio
import hashlib
import hmac
import time
from dataclasses import dataclass, field
from typing import Final

import structlog
from prometheus_client import Counter, Histogram
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.protocol.messages import Api, Envelope, Outcome, Terminal, TokenUsage
from gpu_workers.protocol.policy import Caller, ModelPolicy
from gpu_workers.protocol.request_id import new_request_id
from inference.admission import Admission
from inference.background import Background
from inference.dispatch import Dispatch, QueueFull, RequestState, Stranded, usage_entry
from inference.errors import (
    REDIS_ERRORS,
    Cancelled,
    InferenceError,
    InvalidRequest,
    Unavailable,
    WorkerLost,
)
from inference.token_stream import FrameHub, Progress, TokenStream
from inference.worker_registry import WorkerRegistry

_log = structlog.get_logger(__name__)

WATCH_SECONDS: Final = 0.5
SILENCE_SECONDS: Final = 15.0
# A running request without a frame for so long is asked after: its last frames may be lost.
_IDLE_SECONDS: Final = 3.0
_QUEUE_FULL_RETRY_SECONDS: Final = 5
_RETRY_SECONDS: Final = (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)

ADMITTED = Counter("penstock_gateway_admitted_total", "Requests admitted.", ["api"])
ENDED = Counter("penstock_gateway_ended_total", "Admitted requests by how they ended.", ["outcome"])
CLIENTS_GONE = Counter(
    "penstock_gateway_cancellations_total", "Requests cancelled because the client left or said so."
)
TTFT = Histogram(
    "penstock_gateway_time_to_first_token_seconds",
    "From a request's arrival to its first output at the gateway.",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60),
)


@dataclass(frozen=True, kw_only=True)
class GatewaySettings:
    """What a gateway process is told from outside. Secrets never show in its repr."""

    dispatch_redis_url: str = field(repr=False)
    api_key_pepper: bytes = field(repr=False)
    cache_salt_secret: bytes = field(repr=False)
    allowed_origins: tuple[str, ...] = ()
    max_body_bytes: int = 4 * 1024 * 1024
    max_queue_length: int = 1_000
    max_requests_per_websocket: int = 64
    drain_seconds: float = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class InferenceRequest:
    """A request as a door has validated it. `body` is the JSON for the engine, with allowed
    fields only; `output_tokens` what the client asked for per choice, `output_param` under which
    name; `prompt_bytes` the UTF-8 bytes of the longest prompt's text, found in `prompt_param`."""

    api: Api
    model: str
    stream: bool
    body: bytes
    output_tokens: int | None
    output_param: str
    prompt_bytes: int
    prompt_param: str


class Generation:
    """One admitted request, as its door sees it."""

    def __init__(self, completions: "Completions", envelope: Envelope) -> None:
        self._completions = completions
        self._is_ttft_seen = False
        self.envelope = envelope
        self.is_cancelled = False
        self.is_enqueued = False
        self.started_at = self.pinged_at = time.monotonic()
        self.times_missing = 0
        self.stream: TokenStream = completions.hub.open(envelope.request_id, self._end)

    @property
    def request_id(self) -> str:
        return self.envelope.request_id

    async def next(self) -> Progress:
        """New output, the end, or neither after a long silence. Raises an `InferenceError` if
        the request failed, with its HTTP status for an answer that has not begun."""
        progress = await self.stream.next()
        if progress.chunks and not self._is_ttft_seen:
            self._is_ttft_seen = True
            TTFT.observe(time.monotonic() - self.started_at)
        return progress

    async def result(self) -> Terminal:
        """The end of a request that does not stream."""
        while True:
            progress = await self.stream.next()
            if progress.end is not None:
                return progress.end

    def cancel(self) -> None:
        """The client is gone, or asks for the end. Returns at once; after the end, does nothing."""
        self._completions.cancel(self)

    def _end(self, terminal: Terminal) -> None:
        self._completions.settle(self, terminal)


class Completions:
    """Every request of one gateway process, from admission to settlement."""

    def __init__(self, settings: GatewaySettings) -> None:
        url = settings.dispatch_redis_url
        self._settings = settings
        self._redis: Redis = Redis.from_url(url, socket_timeout=5, socket_connect_timeout=2)
        # A client of its own: redis-py's socket timeout would end a blocking read.
        self._blocking_redis: Redis = Redis.from_url(url, socket_timeout=None)
        self.admission = Admission(self._redis, pepper=settings.api_key_pepper)
        self.dispatch = Dispatch(self._redis)
        self.hub = FrameHub(self._redis, self._blocking_redis)
        self.workers = WorkerRegistry(self._redis)
        self._background = Background()
        self._open: dict[str, Generation] = {}
        self._to_release: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._all_ended = asyncio.Event()
        self._is_stopping = False

    # the life of the process --------------------------------------------------------------------

    async def start(self) -> None:
        """Comes up also while Redis is away: requests get 503 until it answers."""
        try:
            await self.dispatch.load_functions()
        except (RedisError, OSError) as error:
            _log.warning("gateway_starts_without_redis", reason=repr(error))
        await self.admission.start()
        await self.hub.start()
        self._background.supervise(self._watch, name="stranded-requests")
        self._background.supervise(self._release, name="reservations")

    async def stop(self) -> None:
        """Cancels what is still open, waits for its end within the drain time, and lets go."""
        self._is_stopping = True
        for generation in list(self._open.values()):
            self.cancel(generation)
        try:
            async with asyncio.timeout(self._settings.drain_seconds):
                while self._open:
                    self._all_ended.clear()
                    await self._all_ended.wait()
                await self._to_release.join()
        except TimeoutError:
            _log.warning("gateway_stops_with_open_requests", requests=len(self._open))
        await self._background.stop()
        await self.admission.stop()
        await self.hub.stop()
        await self._blocking_redis.aclose()
        await self._redis.aclose()

    # a request ----------------------------------------------------------------------------------

    async def begin(
        self, caller: Caller, request: InferenceRequest, *, request_id: str | None = None
    ) -> Generation:
        """Admits and queues a request; raises an `InferenceError` if that may not be."""
        if self._is_stopping:
            raise Unavailable("This gateway is shutting down; ask again.", retry_after_seconds=1)
        model = await self.admission.model(request.model, caller)
        _check_output(request, caller)
        await self._check_prompt(request, model)
        envelope = self._envelope(caller, request, model, request_id or new_request_id())
        await self.admission.reserve(envelope.request_id, model.pool, caller)
        generation = Generation(self, envelope)
        self._open[envelope.request_id] = generation
        try:
            answer = await self.dispatch.enqueue(
                envelope, max_queue_length=self._settings.max_queue_length
            )
        except BaseException:
            # Whether it is queued is unknown: its end has to be found out.
            generation.is_enqueued = True
            self.cancel(generation)
            raise
        if isinstance(answer, QueueFull):
            self._forget(generation)
            raise Unavailable(
                f"The queue of this model is full: {answer.length} requests wait; try again later.",
                code="queue_full",
                retry_after_seconds=_QUEUE_FULL_RETRY_SECONDS,
            )
        generation.is_enqueued = True
        ADMITTED.labels(envelope.api.value).inc()
        return generation

    def cancel(self, generation: Generation) -> None:
        if generation.is_cancelled or generation.request_id not in self._open:
            return
        generation.is_cancelled = True
        CLIENTS_GONE.inc()
        self._background.spawn(self._cancel(generation), name="cancel")

    def settle(self, generation: Generation, terminal: Terminal) -> None:
        """The end has come, from the worker or from `_end_here`."""
        ENDED.labels(terminal.outcome.value).inc()
        self._forget(generation)

    def _forget(self, generation: Generation) -> None:
        if self._open.pop(generation.request_id, None) is None:
            return
        self.hub.close(generation.request_id)
        self._to_release.put_nowait((generation.envelope.tenant_id, generation.request_id))
        if not self._open:
            self._all_ended.set()

    def _envelope(
        self, caller: Caller, request: InferenceRequest, model: ModelPolicy, request_id: str
    ) -> Envelope:
        arrived_at_ms = time.time_ns() // 1_000_000
        salt = hmac.new(
            self._settings.cache_salt_secret, caller.tenant_id.encode(), hashlib.sha256
        ).hexdigest()
        return Envelope(
            request_id=request_id,
            tenant_id=caller.tenant_id,
            project_id=caller.project_id,
            api_key_id=caller.key_id,
            tier=caller.tier.name,
            gateway_id=self.hub.gateway_id,
            pool=model.pool,
            model=model.name,
            api=request.api,
            stream=request.stream,
            body=request.body,
            max_output_tokens=request.output_tokens
            if request.output_tokens is not None
            else caller.tier.default_max_output_tokens,
            priority=caller.tier.priority,
            cache_salt=salt,
            arrived_at_ms=arrived_at_ms,
            deadline_ms=arrived_at_ms + caller.tier.max_queue_seconds * 1000,
        )

    async def _check_prompt(self, request: InferenceRequest, model: ModelPolicy) -> None:
        context_tokens = await self.workers.fits(model.pool, request.prompt_bytes)
        if context_tokens is not None:
            raise InvalidRequest(
                f"The context of {model.name} is {context_tokens} tokens; the prompt, "
                f"{request.prompt_bytes} bytes of text, is longer however it is tokenized.",
                param=request.prompt_param,
                code="context_length_exceeded",
            )

    # ends that no worker makes ------------------------------------------------------------------

    async def _cancel(self, generation: Generation) -> None:
        """Until the pool has heard it. A running request's end then comes from its worker."""
        envelope = generation.envelope
        for pause in _RETRY_SECONDS:
            try:
                state = await self.dispatch.cancel(envelope.pool, envelope.request_id)
                if state is RequestState.QUEUED:
                    await self._end_here(generation, 0, Outcome.CANCELLED, _cancelled())
                elif state is RequestState.UNKNOWN:
                    generation.stream.end(_end_of(generation, Outcome.CANCELLED, _cancelled()))
                return
            except (RedisError, OSError):
                REDIS_ERRORS.inc()
                await asyncio.sleep(pause)
        _log.error("cancel_not_heard", request_id=envelope.request_id)
        self._forget(generation)

    async def _watch(self) -> None:
        """Ends this gateway's requests that nobody else will: past their deadline in the queue,
        held by a dead worker, or ended without the end having arrived here."""
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            for pool in {generation.envelope.pool for generation in self._open.values()}:
                for stranded in await self.dispatch.reap(
                    pool, grace_ms=0, gateway_id=self.hub.gateway_id
                ):
                    await self._end_stranded(stranded)
                await self._ask_after_idle(pool)
            self._note_silence()

    async def _end_stranded(self, stranded: Stranded) -> None:
        generation = self._open.get(stranded.request_id)
        if generation is None:
            return
        if stranded.state is RequestState.QUEUED:
            waited = time.monotonic() - generation.started_at
            error = Unavailable(
                f"No worker was free for this request within {waited:.0f} s; try again later.",
                code="queue_timeout",
                retry_after_seconds=_QUEUE_FULL_RETRY_SECONDS,
            )
            await self._end_here(generation, 0, Outcome.EXPIRED, error)
        else:
            await self._end_here(generation, stranded.attempt, Outcome.FAILED, _worker_lost())

    async def _end_here(
        self, generation: Generation, attempt: int, outcome: Outcome, error: InferenceError
    ) -> None:
        """Finishes a request in its worker's place, if it is still ours to finish."""
        stream = generation.stream
        begun_at = stream.first_frame_at
        entry = usage_entry(
            generation.envelope,
            attempt=attempt,
            outcome=outcome,
            error_code=error.to_wire().code,
            worker_id=stream.worker_id,
            usage=TokenUsage(completion_tokens=stream.completion_tokens),
            ttft_ms=None if begun_at is None else int((begun_at - generation.started_at) * 1000),
        )
        if await self.dispatch.finish(entry):
            stream.end(_end_of(generation, outcome, error))

    async def _ask_after_idle(self, pool: str) -> None:
        oldest = time.monotonic() - _IDLE_SECONDS
        idle = {
            generation.request_id: generation
            for generation in self._open.values()
            if generation.envelope.pool == pool
            and generation.is_enqueued
            and generation.stream.last_frame_at < oldest
        }
        if not idle:
            return
        for request_id, state in (await self.dispatch.states(pool, list(idle))).items():
            generation = idle[request_id]
            if state in (RequestState.QUEUED, RequestState.RUNNING):
                generation.times_missing = 0
                continue
            generation.times_missing += 1
            if generation.times_missing > 1:
                _log.warning("end_did_not_arrive", request_id=request_id, state=state.value)
                generation.stream.end(_end_of(generation, Outcome.FAILED, _worker_lost()))

    def _note_silence(self) -> None:
        now = time.monotonic()
        for generation in self._open.values():
            last = max(generation.stream.last_frame_at, generation.pinged_at)
            if now - last >= SILENCE_SECONDS:
                generation.pinged_at = now
                generation.stream.note_silence()

    async def _release(self) -> None:
        """Gives reservations back, all that have gathered in one round trip."""
        while True:
            batch = [await self._to_release.get()]
            while not self._to_release.empty():
                batch.append(self._to_release.get_nowait())
            try:
                await self.admission.release(batch)
            except BaseException:
                for reservation in batch:
                    self._to_release.put_nowait(reservation)
                raise
            finally:
                for _ in batch:
                    self._to_release.task_done()


def _check_output(request: InferenceRequest, caller: Caller) -> None:
    asked, limit = request.output_tokens, caller.tier.max_output_tokens
    if asked is not None and asked > limit:
        raise InvalidRequest(
            f"{request.output_param} is {asked}; tier {caller.tier.name} allows at most {limit}.",
            param=request.output_param,
        )


def _worker_lost() -> WorkerLost:
    return WorkerLost("The worker that held this request died; ask again.", retry_after_seconds=1)


def _cancelled() -> Cancelled:
    return Cancelled("The request was cancelled.")


def _end_of(generation: Generation, outcome: Outcome, error: InferenceError) -> Terminal:
    """The end that a gateway makes up: with what it had accepted."""
    stream = generation.stream
    return Terminal(
        request_id=stream.request_id,
        attempt=stream.attempt,
        seq=0,
        outcome=outcome,
        usage=TokenUsage(completion_tokens=stream.completion_tokens),
        error=error.to_wire(),
    )
