"""The use case: admit -> queue -> stream -> settle. Doors call only this.

A `Generation` is what a door reads from. Its end is settled in the background, whether or not the
door is still there: a client that leaves never takes the accounting with it.
"""

import hashlib
import hmac
import time
from dataclasses import dataclass, field
from typing import Final

import structlog
from prometheus_client import Counter
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialBackoff, NoBackoff
from redis.exceptions import RedisError

from gpu_workers.protocol.messages import Api, Envelope
from gpu_workers.protocol.policy import Caller, ModelPolicy
from gpu_workers.protocol.request_id import new_request_id
from inference.admission import Admission, Admitted
from inference.charges import Prices, prices_of, worst_case
from inference.dispatch import Dispatch, QueueFull
from inference.errors import InferenceError, InvalidRequest, LimitReached, Unavailable
from inference.generation import Bounds, Generation
from inference.settlement import Settlement
from inference.token_stream import FrameHub
from inference.worker_registry import WorkerRegistry

_log = structlog.get_logger(__name__)

_QUEUE_FULL_RETRY_SECONDS: Final = 5
_REDIS_CONNECTIONS: Final = 64
_REDIS_WAIT_SECONDS: Final = 5

ADMITTED = Counter("penstock_gateway_admitted_total", "Requests admitted.", ["api"])


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
    max_requests_per_websocket: int = 64
    drain_seconds: float = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class InferenceRequest:
    """A request as a door has validated it. `body` is the JSON for the engine, with allowed
    fields only; `output_tokens` what the client asked for per choice, `output_param` under which
    name; `prompt_bytes` the UTF-8 bytes of the longest prompt's text, found in `prompt_param`.

    The worst case is reserved by `prompt_bound`, the most tokens that the text of all `prompts`
    may have, `templates`, how often a template adds its part to it, and `choices`, how many
    outputs are generated in all. `is_resumable`: another worker may go on with it after its first
    token.
    """

    api: Api
    model: str
    stream: bool
    body: bytes
    output_tokens: int | None
    output_param: str
    prompt_bytes: int
    prompt_param: str
    prompt_bound: int
    prompts: int = 1
    templates: int = 1
    choices: int = 1
    is_resumable: bool = False


class Completions:
    """Every request of one gateway process, from admission to settlement."""

    def __init__(self, settings: GatewaySettings) -> None:
        url = settings.dispatch_redis_url
        self._settings = settings
        # redis-py's own patience is seconds: better a quick 503 than a caller that waits.
        # A burst waits for a connection: the ordinary pool fails the 101st request at once.
        self._redis: Redis = Redis.from_pool(
            BlockingConnectionPool.from_url(
                url,
                max_connections=_REDIS_CONNECTIONS,
                timeout=_REDIS_WAIT_SECONDS,
                socket_timeout=5,
                socket_connect_timeout=2,
                retry=Retry(ExponentialBackoff(cap=0.2, base=0.02), 2),
            )
        )
        # A client of its own: redis-py's socket timeout would end a blocking read. The hub's
        # supervisor does the retrying.
        self._blocking_redis: Redis = Redis.from_url(
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
        self.settlement = Settlement(self.admission, self.dispatch, self.hub)
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
        self.settlement.start()

    async def stop(self) -> None:
        """Cancels what is still open, waits for its end within the drain time, and lets go."""
        self._is_stopping = True
        await self.settlement.stop(drain_seconds=self._settings.drain_seconds)
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
        await self._check_prompt(request, model, caller)
        bounds = await self._bounds(request, model, caller)
        envelope = self._envelope(caller, request, model, bounds, request_id or new_request_id())
        admitted = await self._reserve(envelope, caller, bounds, prices_of(model, caller.tier))
        generation = self.settlement.open(envelope, caller, admitted, bounds)
        try:
            await self._enqueue(generation)
        except InferenceError as error:
            error.headers = admitted.headers
            raise
        generation.is_enqueued = True
        if self._is_stopping:
            generation.cancel()
        ADMITTED.labels(envelope.api.value).inc()
        return generation

    async def _reserve(
        self, envelope: Envelope, caller: Caller, bounds: Bounds, prices: Prices
    ) -> Admitted:
        charge = worst_case(bounds.prompt_tokens, bounds.output_tokens, prices)
        try:
            return await self.admission.reserve(
                envelope.request_id, caller, envelope.pool, charge, prices
            )
        except LimitReached:
            raise
        except BaseException:
            # Whether it is reserved is unknown.
            self.settlement.give_back(envelope)
            raise

    async def _enqueue(self, generation: Generation) -> None:
        try:
            answer = await self.dispatch.enqueue(
                generation.envelope, max_queue_length=self._settings.max_queue_length
            )
        except BaseException:
            # Whether it is queued is unknown: its end has to be found out.
            generation.is_enqueued = True
            generation.cancel()
            raise
        if isinstance(answer, QueueFull):
            self.settlement.forget(generation)
            raise Unavailable(
                f"The queue of this model is full: {answer.length} requests wait; try again later.",
                code="queue_full",
                retry_after_seconds=_QUEUE_FULL_RETRY_SECONDS,
            )

    async def _bounds(
        self, request: InferenceRequest, model: ModelPolicy, caller: Caller
    ) -> Bounds:
        """The most that the request may take: no more than fits the context it has, since a
        longer one is refused unrun."""
        overhead, context = await self.workers.prompt_bounds(model.pool, model.context_tokens)
        if caller.tier.max_context_tokens is not None:
            context = min(context, caller.tier.max_context_tokens)
        prompt_bound = request.prompt_bound + overhead * request.templates
        asked = request.output_tokens
        output = caller.tier.default_max_output_tokens if asked is None else asked
        return Bounds(
            prompt_tokens=min(prompt_bound, context * request.prompts),
            output_tokens=min(output, context) * request.choices,
            is_one_prompt=request.prompts == 1,
        )

    def _envelope(
        self,
        caller: Caller,
        request: InferenceRequest,
        model: ModelPolicy,
        bounds: Bounds,
        request_id: str,
    ) -> Envelope:
        arrived_at_ms = time.time_ns() // 1_000_000
        salt = hmac.new(
            self._settings.cache_salt_secret, caller.tenant_id.encode(), hashlib.sha256
        ).hexdigest()
        return Envelope(
            request_id=request_id,
            tenant_id=caller.tenant_id,
            project_id=caller.key.project_id,
            api_key_id=caller.key.key_id,
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
            ttft_target_ms=caller.tier.ttft_target_ms,
            max_wait_ms=caller.tier.max_queue_seconds * 1000,
            max_context_tokens=caller.tier.max_context_tokens,
            weight=caller.tier.weight,
            service_class=caller.tier.service_class,
            prompt_bound=bounds.prompt_tokens,
            output_bound=bounds.output_tokens,
            is_resumable=request.is_resumable,
        )

    async def _check_prompt(
        self, request: InferenceRequest, model: ModelPolicy, caller: Caller
    ) -> None:
        """Refuses what is too long however it is tokenized; the worker judges the rest."""
        tier = caller.tier
        context_tokens = await self.workers.fits(
            model.pool, request.prompt_bytes, tier.max_context_tokens
        )
        if context_tokens is None:
            return
        is_tiers = context_tokens == tier.max_context_tokens
        whose = f"tier {tier.name}" if is_tiers else model.name
        raise InvalidRequest(
            f"The context of {whose} is {context_tokens} tokens; the prompt, "
            f"{request.prompt_bytes} bytes of text, is longer however it is tokenized.",
            param=request.prompt_param,
            code="context_length_exceeded",
        )


def _check_output(request: InferenceRequest, caller: Caller) -> None:
    asked, limit = request.output_tokens, caller.tier.max_output_tokens
    context = caller.tier.max_context_tokens
    if asked is not None and context is not None and asked >= context:
        raise InvalidRequest(
            f"{request.output_param} is {asked}; the context of tier {caller.tier.name} is "
            f"{context} tokens, prompt and output together.",
            param=request.output_param,
            code="context_length_exceeded",
        )
    if asked is not None and asked > limit:
        raise InvalidRequest(
            f"{request.output_param} is {asked}; tier {caller.tier.name} allows at most {limit}.",
            param=request.output_param,
        )
