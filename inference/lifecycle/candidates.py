"""A request as a door has validated it, and what a model's pool is asked for it: the envelope, the
most that it may take, and the prices. The project's smaller model may answer in the model's place.
"""

import hashlib
import hmac
import time
from dataclasses import dataclass
from typing import Final

from gpu_workers.protocol.messages import Api, Envelope, Prices
from gpu_workers.protocol.policy import Caller, ModelPolicy, OnSaturation, TierPolicy
from inference.admission.gate import Admission
from inference.admission.reservations import PoolTarget
from inference.charges import Bounds, Charge, prices_of, worst_case
from inference.dispatch.worker_registry import WorkerRegistry
from inference.errors import InvalidRequest, ModelNotFound

# The engine runs them in this order where it cannot run them all.
_CLASSES: Final = ("interactive", "code", "documents", "batch")
_PRIORITIES: Final = 1 << 16  # a tier's is a small integer


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A model that may answer a request: what its pool is asked, and the most that it may take."""

    model: ModelPolicy
    envelope: Envelope
    bounds: Bounds

    @property
    def prices(self) -> Prices:
        return self.envelope.prices

    @property
    def target(self) -> PoolTarget:
        return PoolTarget(self.envelope.pool, self.prices)

    @property
    def worst_case(self) -> Charge:
        return worst_case(self.bounds.prompt_tokens, self.bounds.output_tokens, self.prices)


class CandidateBuilder:
    """Builds the candidates of one gateway process."""

    def __init__(
        self,
        admission: Admission,
        workers: WorkerRegistry,
        *,
        gateway_id: str,
        cache_salt_secret: bytes,
    ) -> None:
        self._admission = admission
        self._workers = workers
        self._gateway_id = gateway_id
        self._cache_salt_secret = cache_salt_secret

    async def primary(
        self, caller: Caller, request: InferenceRequest, request_id: str
    ) -> Candidate:
        """Build the candidate of the model that the request names; raises an `InferenceError` where
        the caller may not have it, or the request is too large for it."""
        model = await self._admission.model(request.model, caller)
        _check_output(request, caller)
        await self._check_prompt(request, model, caller)
        return await self._candidate(caller, request, model, request_id)

    async def fallback(
        self, caller: Caller, request: InferenceRequest, primary: Candidate
    ) -> tuple[Candidate | None, str]:
        """Build the candidate that the project has answer where the model is saturated; None, and a
        sentence that says why, where no other model can."""
        name = caller.key.smaller_model
        if not name:
            return None, ""
        if name == primary.model.name:
            return None, "It is the project's smaller model itself."
        try:
            model = await self._admission.model(name, caller)
        except ModelNotFound:
            return None, "The project's smaller model is none that this API key can call."
        overhead, context = await self._context(model, caller)
        most = request.prompt_bytes + overhead * request.templates + (request.output_tokens or 1)
        if most > context < (await self._context(primary.model, caller))[1]:
            return None, f"The context of {name}, which answers instead, may be too small for it."
        return await self._candidate(caller, request, model, primary.envelope.request_id), ""

    async def _candidate(
        self, caller: Caller, request: InferenceRequest, model: ModelPolicy, request_id: str
    ) -> Candidate:
        bounds = await self._bounds(request, model, caller)
        return Candidate(
            model=model,
            envelope=self._envelope(
                caller,
                request,
                model,
                bounds,
                request_id,
                is_resumable=request.is_resumable and await self._workers.can_resume(model.pool),
            ),
            bounds=bounds,
        )

    async def _context(self, model: ModelPolicy, caller: Caller) -> tuple[int, int]:
        """What a template adds to a message, and the context that the caller has, in tokens."""
        overhead, context = await self._workers.prompt_bounds(model.pool, model.context_tokens)
        return overhead, min(context, caller.tier.max_context_tokens or context)

    async def _bounds(
        self, request: InferenceRequest, model: ModelPolicy, caller: Caller
    ) -> Bounds:
        """The most that the request may take: no more than fits the context it has, since a
        longer one is refused unrun."""
        overhead, context = await self._context(model, caller)
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
        *,
        is_resumable: bool,
    ) -> Envelope:
        arrived_at_ms = time.time_ns() // 1_000_000
        salt = hmac.new(
            self._cache_salt_secret, caller.tenant_id.encode(), hashlib.sha256
        ).hexdigest()
        return Envelope(
            request_id=request_id,
            tenant_id=caller.tenant_id,
            project_id=caller.key.project_id,
            api_key_id=caller.key.key_id,
            tier=caller.tier.name,
            gateway_id=self._gateway_id,
            pool=model.pool,
            model=model.name,
            api=request.api,
            stream=request.stream,
            body=request.body,
            max_output_tokens=request.output_tokens
            if request.output_tokens is not None
            else caller.tier.default_max_output_tokens,
            priority=_engine_priority(caller.tier),
            cache_salt=salt,
            arrived_at_ms=arrived_at_ms,
            ttft_target_ms=caller.tier.ttft_target_ms,
            max_wait_ms=caller.tier.max_queue_seconds * 1000,
            max_context_tokens=caller.tier.max_context_tokens,
            weight=caller.tier.weight,
            service_class=caller.tier.service_class,
            prompt_bound=bounds.prompt_tokens,
            output_bound=bounds.output_tokens,
            is_resumable=is_resumable,
            prices=prices_of(model, caller.tier, at_ms=arrived_at_ms),
            on_saturation="wait" if caller.key.on_saturation is OnSaturation.WAIT else "refuse",
        )

    async def _check_prompt(
        self, request: InferenceRequest, model: ModelPolicy, caller: Caller
    ) -> None:
        """Refuses what is too long however it is tokenized; the worker judges the rest."""
        tier = caller.tier
        context_tokens = await self._workers.fits(
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


def _engine_priority(tier: TierPolicy) -> int:
    """vLLM's priority, smaller runs first: by class, within one by the tier's."""
    return _CLASSES.index(tier.service_class) * _PRIORITIES + tier.priority


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
