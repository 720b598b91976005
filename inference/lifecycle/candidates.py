"""Which models may answer a request, and what their pools are asked for it: the envelope, the most
that it may take, and the prices. The project's smaller model may answer in the model's place."""

import hashlib
import hmac
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from gpu_workers.protocol.clock import now_ms
from gpu_workers.protocol.labels import chosen_labels
from gpu_workers.protocol.messages import Envelope, Prices
from gpu_workers.protocol.policy import Caller, Capability, ModelPolicy, OnSaturation, TierPolicy
from inference.admission.adapters import ChosenAdapter
from inference.admission.callable_models import CallableModel
from inference.admission.gate import Admission
from inference.admission.reservations import PoolTarget
from inference.charges import Bounds, Charge, prices_of, upper_bound, worst_case
from inference.dispatch.pool_view import PoolView
from inference.dispatch.worker_registry import WorkerRegistry
from inference.errors import BeyondBounds, ModelCapabilityMissing, ModelNotFound, NoWorker
from inference.lifecycle.answer_bound import check_answer, most_output_tokens
from inference.lifecycle.inference_request import InferenceRequest
from inference.lua_constants import CLASS_WEIGHTS
from inference.proofs import Prover

# The engine runs them in this order where it cannot run them all.
_CLASSES: Final = tuple(CLASS_WEIGHTS)
_PRIORITIES: Final = 1 << 16  # a tier's is a small integer


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A model that may answer a request: what its pool is asked, and the most that it may take.
    `owed_proof` is the envelope's proof where its queue judges that it is owed its promises."""

    envelope: Envelope
    bounds: Bounds
    owed_proof: bytes

    @property
    def prices(self) -> Prices:
        return self.envelope.prices

    def traced(self, traceparent: str) -> "Candidate":
        return replace(self, envelope=structs.replace(self.envelope, traceparent=traceparent))

    @property
    def target(self) -> PoolTarget:
        return PoolTarget(self.envelope.pool, self.prices)

    @property
    def worst_case(self) -> Charge:
        return worst_case(self.bounds.prompt_tokens, self.bounds.output_tokens, self.prices)


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """The models that may answer a request: the one that it names, and the one that its project
    has answer where the first is saturated. `no_fallback_reason` is a sentence that says why a
    project that has chosen a smaller model gets no fallback; else it is empty. `has_worker`: one of
    the primary's pool is ready."""

    primary: Candidate
    fallback: Candidate | None = None
    no_fallback_reason: str = ""
    has_worker: bool = True

    def traced(self, traceparent: str) -> "Candidates":
        """Return the same, with the gateway's span for whoever takes one of them."""
        fallback = self.fallback
        return replace(
            self,
            primary=self.primary.traced(traceparent),
            fallback=None if fallback is None else fallback.traced(traceparent),
        )

    @property
    def worst_case(self) -> Charge:
        """Return what covers the request whichever of them answers it."""
        both = [self.primary] if self.fallback is None else [self.primary, self.fallback]
        return upper_bound(each.worst_case for each in both)


class CandidateBuilder:
    """Builds the candidates of one gateway process."""

    def __init__(
        self,
        admission: Admission,
        workers: WorkerRegistry,
        *,
        prover: Prover,
        gateway_id: str,
        cache_salt_secret: bytes,
        worker_expected_seconds: float | None = None,
    ) -> None:
        self._admission = admission
        self._prover = prover
        self._workers = workers
        self._gateway_id = gateway_id
        self._cache_salt_secret = cache_salt_secret
        self._worker_expected_seconds = worker_expected_seconds

    async def build(self, caller: Caller, request: InferenceRequest, request_id: str) -> Candidates:
        """Return the candidates of a request. Raises `ModelNotFound` where the caller may not know
        of its model, `ModelCapabilityMissing` where the model is not meant for it, `BeyondBounds`
        where it is too large for the model or the caller's tier, and `NoWorker` where nobody would
        take it."""
        offer = await self._admission.offer(request.model, caller, sticky=request.sticky)
        primary = await self._view(offer)
        _check_capabilities(request, primary.model)
        _check_output(request, caller.tier)
        check_answer(request, primary.context_tokens(caller.tier.max_context_tokens))
        _check_prompt(request, primary, caller.tier)
        _check_sequences(request, primary)
        await self._check_worker(primary)
        fallback, reason = await self._fallback(caller, request, primary, offer)
        return Candidates(
            primary=self._candidate(caller, request, primary, request_id, offer.adapter),
            fallback=None
            if fallback is None
            else self._candidate(caller, request, fallback, request_id),
            no_fallback_reason=reason,
            has_worker=any(worker.is_ready for worker in primary.workers),
        )

    async def _check_worker(self, view: PoolView) -> None:
        """Refuse what would only wait for its end: no worker lives, and none is expected."""
        model, seconds = view.model, self._worker_expected_seconds
        if seconds is None or model.scales_from_zero:
            return
        if not await self._workers.is_expected(model.pool, seconds):
            raise NoWorker(f"No worker is running for model {model.name!r}.")

    async def _view(self, offer: CallableModel) -> PoolView:
        workers = await self._workers.kinds(offer.model.pool)
        return PoolView(model=offer.model, workers=workers)

    async def _fallback(
        self, caller: Caller, request: InferenceRequest, primary: PoolView, offer: CallableModel
    ) -> tuple[PoolView | None, str]:
        """Return the view of the project's smaller model, or why it cannot answer this request."""
        name = caller.key.smaller_model
        if not name:
            return None, ""
        if offer.adapter is not None:
            return None, f"No other model answers as {offer.adapter_name} does."
        if name == primary.model.name:
            return None, "It is the project's smaller model itself."
        try:
            smaller = await self._admission.offer(name, caller)
        except ModelNotFound:
            return None, "The project's smaller model is none that this API key can call."
        if smaller.adapter is not None:
            return None, "The project's smaller model is an adapter, which answers for none."
        view = await self._view(smaller)
        missing = _missing_capability(request, view.model)
        if missing is not None:
            return None, f"{name}, which answers instead, does not support {missing.value}."
        if _is_too_wide(request, view):
            return None, f"{name}, which answers instead, decodes fewer choices at a time."
        limit = caller.tier.max_context_tokens
        template_tokens = view.template_overhead_tokens * request.templates
        most = request.prompt_bytes + template_tokens + (request.output_tokens or 1)
        if most > view.context_tokens(limit) < primary.context_tokens(limit):
            return None, f"The context of {name}, which answers instead, may be too small for it."
        return view, ""

    def _candidate(
        self,
        caller: Caller,
        request: InferenceRequest,
        view: PoolView,
        request_id: str,
        adapter: ChosenAdapter | None = None,
    ) -> Candidate:
        bounds = _bounds(request, view, caller.tier)
        envelope = self._envelope(caller, request, view, bounds, request_id)
        if adapter is not None:
            envelope = _with_adapter(envelope, view.model, caller.tier, adapter)
        proof, owed_proof = (self._prover.prove(envelope, owed=owed) for owed in (False, True))
        envelope = structs.replace(envelope, proof=proof)
        return Candidate(envelope=envelope, bounds=bounds, owed_proof=owed_proof)

    def _envelope(
        self,
        caller: Caller,
        request: InferenceRequest,
        view: PoolView,
        bounds: Bounds,
        request_id: str,
    ) -> Envelope:
        model, tier = view.model, caller.tier
        arrived_at_ms = now_ms()
        salt = hmac.new(
            self._cache_salt_secret, caller.tenant_id.encode(), hashlib.sha256
        ).hexdigest()
        return Envelope(
            request_id=request_id,
            tenant_id=caller.tenant_id,
            project_id=caller.key.project_id,
            api_key_id=caller.key.key_id,
            tier=tier.name,
            gateway_id=self._gateway_id,
            pool=model.pool,
            model=model.name,
            api=request.api,
            stream=request.stream,
            body=request.body,
            max_output_tokens=_output_tokens(request, tier),
            priority=_engine_priority(tier),
            cache_salt=salt,
            arrived_at_ms=arrived_at_ms,
            ttft_target_ms=tier.ttft_target_ms,
            inter_token_target_ms=tier.inter_token_target_ms,
            max_wait_ms=tier.max_queue_seconds * 1000,
            max_context_tokens=tier.max_context_tokens,
            weight=tier.weight,
            service_class=tier.service_class,
            prompt_bound=bounds.prompt_tokens,
            output_bound=bounds.output_tokens,
            is_resumable=request.is_resumable and view.can_resume,
            reads_last_frames=True,
            reads_texts=True,
            prices=prices_of(model, tier, at_ms=arrived_at_ms),
            sequences=request.choices,
            labels=chosen_labels(caller.key.usage_labels, request.labels),
            on_saturation="wait" if caller.key.on_saturation is OnSaturation.WAIT else "refuse",
        )


def _with_adapter(
    envelope: Envelope, model: ModelPolicy, tier: TierPolicy, adapter: ChosenAdapter
) -> Envelope:
    """Return the envelope for an adapter of its model, at the adapter's price. Whatever becomes of
    the first attempt, the version is the same."""
    name, arrived_at_ms = adapter.policy.name, envelope.arrived_at_ms
    return structs.replace(
        envelope,
        adapter=adapter.version.adapter,
        adapter_name=name,
        adapter_version=adapter.version.number,
        prices=prices_of(model, tier, adapter=name, at_ms=arrived_at_ms),
    )


def _engine_priority(tier: TierPolicy) -> int:
    """Return vLLM's priority, smaller runs first: by class, within one by the tier's."""
    return _CLASSES.index(tier.service_class) * _PRIORITIES + tier.priority


def _bounds(request: InferenceRequest, view: PoolView, tier: TierPolicy) -> Bounds:
    """Return the most that the request may take: no more than fits the context it has, since a
    longer one is refused unrun."""
    context = view.context_tokens(tier.max_context_tokens)
    prompt_bound = request.prompt_bound + view.template_overhead_tokens * request.templates
    return Bounds(
        prompt_tokens=min(prompt_bound, context * request.prompts),
        output_tokens=min(_output_tokens(request, tier), context) * request.choices,
        is_one_prompt=request.prompts == 1,
    )


def _output_tokens(request: InferenceRequest, tier: TierPolicy) -> int:
    """Return the bound of each choice's output: the client's, else the tier's, and never more than
    one answer may hold."""
    asked = request.output_tokens
    output = tier.default_max_output_tokens if asked is None else asked
    return min(output, most_output_tokens(request))


def _missing_capability(request: InferenceRequest, model: ModelPolicy) -> Capability | None:
    return next((need for need in request.needs if not model.supports(need)), None)


def _check_capabilities(request: InferenceRequest, model: ModelPolicy) -> None:
    missing = _missing_capability(request, model)
    if missing is None:
        return
    raise ModelCapabilityMissing(
        f"The model {model.name!r} does not support {missing.value}; it supports "
        f"{', '.join(model.capabilities)}. GET /v1/models lists what each model supports.",
        param=request.needs[missing],
    )


def _is_too_wide(request: InferenceRequest, view: PoolView) -> bool:
    return view.slots is not None and request.choices > view.slots


def _check_sequences(request: InferenceRequest, view: PoolView) -> None:
    """Refuse what no worker decodes at a time."""
    if not _is_too_wide(request, view):
        return
    raise BeyondBounds(
        f"This request has {request.choices} choices in all, and the largest worker of "
        f"{view.model.name} decodes {view.slots} at a time; ask for fewer in a request.",
        param="n" if request.prompts == 1 else request.prompt_param,
        code="too_many_choices",
    )


def _check_prompt(request: InferenceRequest, view: PoolView, tier: TierPolicy) -> None:
    """Refuse what is too long however it is tokenized; the worker judges the rest."""
    limit = tier.max_context_tokens
    if request.is_truncated:
        return
    bytes_of_text, ids = request.prompt_bytes, request.prompt_token_ids
    context_tokens = view.exceeded_context(bytes_of_text, limit, token_ids=ids)
    if context_tokens is None:
        return
    whose = f"tier {tier.name}" if context_tokens == limit else view.model.name
    what = f"{ids} token ids" if ids > context_tokens else f"{bytes_of_text} bytes of text"
    raise BeyondBounds(
        f"The context of {whose} is {context_tokens} tokens; the prompt, {what}, is longer "
        "however it is tokenized.",
        param=request.prompt_param,
        code="context_length_exceeded",
    )


def _check_output(request: InferenceRequest, tier: TierPolicy) -> None:
    asked, limit, context = request.output_tokens, tier.max_output_tokens, tier.max_context_tokens
    if asked is not None and context is not None and asked >= context:
        raise BeyondBounds(
            f"{request.output_param} is {asked}; the context of tier {tier.name} is "
            f"{context} tokens, prompt and output together.",
            param=request.output_param,
            code="context_length_exceeded",
        )
    if asked is not None and asked > limit:
        raise BeyondBounds(
            f"{request.output_param} is {asked}; tier {tier.name} allows at most {limit}.",
            param=request.output_param,
        )
