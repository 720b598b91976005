"""The thin proxy between vLLM's serving objects and its engine.

The serving objects call `generate` as they would on AsyncLLM. On the way in it sets what is ours
to set (priority, adapter, bounds); on the way out it counts, so that a result says what the engine
really generated, also after an abort. It runs for every token: nothing but counting belongs here.
"""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import structlog
from vllm.exceptions import VLLMValidationError
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind, SamplingParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.async_llm import AsyncLLM

from gpu_workers.protocol.messages import Envelope
from gpu_workers.requests.echo_bound import echo_refusal
from gpu_workers.requests.prompt_bound import prompt_refusal
from gpu_workers.requests.refusal import RequestRefused
from gpu_workers.vllm.generation import Generation
from gpu_workers.vllm.outputs_apart import keep_apart
from gpu_workers.vllm.structures.gate import FOLLOWED_TOO_SLOWLY, StructureGate
from gpu_workers.vllm.structures.step_guard import StepGuard

try:
    from gpu_workers.vllm.resumption import resume
except ImportError:  # of what another vLLM has elsewhere; the probes report it
    CAN_RESUME = False
else:
    CAN_RESUME = True


_log = structlog.get_logger("gpu_workers.vllm.client")


class CountingLLM(AsyncLLM):  # type: ignore[misc]  # vLLM is not seen here
    """AsyncLLM under our ids: `generations` is keyed by the request's id, which the serving
    objects wrap as `<prefix>-<id>` or `<prefix>-<id>-<prompt>`."""

    generations: dict[str, Generation]
    structures: StructureGate
    guard: StepGuard
    resumes: bool = True

    def __del__(self) -> None:
        """Do nothing: we shut the engine down; AsyncLLM's attempt fails when Python exits."""

    def generate(
        self,
        prompt: Any,
        sampling_params: SamplingParams,
        request_id: str,
        **options: Any,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Count a prompt, then generate. vLLM calls this for all prompts before it begins one."""
        generation = self.generation_of(request_id)
        generation.end_rendering()
        generation.rendered_tokens += len(prompt["prompt_token_ids"])
        return self._generate(generation, prompt, sampling_params, request_id, **options)

    async def _generate(
        self,
        generation: Generation,
        prompt: Any,
        sampling_params: SamplingParams,
        request_id: str,
        **options: Any,
    ) -> AsyncGenerator[RequestOutput, None]:
        if generation.is_aborted:
            return
        generation.engine_ids.append(request_id)
        envelope = generation.envelope
        options["priority"] = envelope.priority
        options["lora_request"] = generation.lora_request
        try:
            _bound(sampling_params, _room(prompt, envelope))
            if refusal := prompt_refusal(envelope, generation.rendered_tokens):
                raise RequestRefused(refusal)
            await self._check_structure(generation, sampling_params)
            generation.follows_structure = sampling_params.structured_outputs is not None
            if generation.is_aborted:
                return
            is_long = _prepare_logprobs(sampling_params, generation.rendered_tokens)
            outputs = super().generate(prompt, sampling_params, request_id, **options)
            async for output in outputs:
                generation.started(request_id, output)
                if generation.replay is not None:
                    generation.record(generation.replay)
                    yield generation.replay
                    generation.replay = None
                generation.record(output)
                yield output
                break
            record = generation.record
            async for output in outputs:
                record(output)
                yield output
                if is_long:
                    await asyncio.sleep(0)
        except Exception as error:
            generation.error = error
            raise

    async def add_request(
        self, request_id: str, prompt: Any, params: SamplingParams, **options: Any
    ) -> Any:
        """Note the queue of a request's outputs, for `divert` and `record_rest`."""
        queue = await super().add_request(request_id, prompt, params, **options)
        generation = self.generation_of(request_id)
        generation.queues[request_id] = queue
        generation.unheard_ids.add(request_id)
        if params.logprobs is not None and params.output_kind is RequestOutputKind.DELTA:
            keep_apart(queue)
        return queue

    async def _add_request(self, request: EngineCoreRequest, *arguments: Any) -> None:
        """Resume a request here, where vLLM hands it to its output processor and its engine."""
        if not self.resumes:
            await super()._add_request(request, *arguments)
            return
        generation = self.generation_of(request.external_req_id)
        token_ids = generation.envelope.resumed_token_ids
        if not token_ids:
            await super()._add_request(request, *arguments)
            return
        prompt, parent, index, queue = arguments
        processor, context = self.output_processor, self.vllm_config.model_config.max_model_len
        processor.add_request(request, prompt, parent, index, queue)
        try:
            resumption = resume(processor, request, token_ids, context)
        except Exception:
            # Its state would stay for ever, and the engine would never be without requests.
            processor.abort_requests([request.request_id], internal=True)
            raise
        if resumption.rest is None:
            queue.put(resumption.replay)
            return
        generation.replay = resumption.replay
        await self.engine_core.add_request_async(resumption.rest)

    async def _check_structure(
        self, generation: Generation, sampling_params: SamplingParams
    ) -> None:
        """Let the structure gate judge; an abort ends the waiting for it."""
        if sampling_params.structured_outputs is None:
            return
        check = self.structures.check(generation.envelope, sampling_params)
        checking = generation.checking = asyncio.create_task(check, name="structure-check")
        try:
            await checking
        except asyncio.CancelledError:
            if not generation.is_aborted:
                raise
            return
        self.guard.begins(generation.envelope.request_id, lambda: self._end_too_costly(generation))

    def _end_too_costly(self, generation: Generation) -> None:
        _log.warning("structure_slows_engine", request_id=generation.envelope.request_id)
        generation.ended_for = FOLLOWED_TOO_SLOWLY
        generation.ending = asyncio.create_task(self.abort_generation(generation))

    async def end_generation(self, generation: Generation) -> None:
        """Have the engine end what a generation whose answer is over still has in it, and count
        that. An error of one choice ends the answer while others go on."""
        if generation.is_whole or not generation.queues:
            return
        await self.abort(list(generation.engine_ids))
        generation.record_rest()

    def generation_of(self, request_id: str) -> Generation:
        """Find a generation by the id that a serving object gave it."""
        return self.generations[request_id.split("-", 2)[1]]

    async def abort_generation(self, generation: Generation) -> None:
        """Abort by id, so that the generator still yields what was generated."""
        generation.is_aborted = True
        if generation.checking is not None:
            generation.checking.cancel()
        if generation.engine_ids:
            await self.abort(list(generation.engine_ids))


def _room(prompt: Any, envelope: Envelope) -> int:
    """Return the output tokens that were reserved, or fewer if the tier's context has less room.
    Raises `VLLMValidationError` if the prompt alone fills it."""
    if envelope.max_context_tokens is None:
        return envelope.max_output_tokens
    prompt_tokens = len(prompt["prompt_token_ids"])
    if prompt_tokens >= envelope.max_context_tokens:
        raise VLLMValidationError(
            f"The tier's maximum context length is {envelope.max_context_tokens} tokens, prompt "
            f"and output together, but the prompt has {prompt_tokens}."
        )
    return min(envelope.max_output_tokens, envelope.max_context_tokens - prompt_tokens)


def _bound(sampling_params: SamplingParams, max_output_tokens: int) -> None:
    """Enforce the reserved bound, which is at least one token: vLLM generates one even where it
    only echoes. Raises `VLLMValidationError` for `min_tokens` above it, which would never let a
    request end."""
    wanted, most = sampling_params.max_tokens, max(1, max_output_tokens)
    bound = most if wanted is None else min(wanted, most)
    if sampling_params.min_tokens > bound:
        raise VLLMValidationError(
            f"min_tokens must be at most the {bound} tokens that this request may generate.",
            parameter="min_tokens",
            value=sampling_params.min_tokens,
        )
    sampling_params.max_tokens = bound
    # The engine checks them again as it decodes them; what it refuses there ends its input thread,
    # and with that the engine, silently.
    sampling_params._verify_args()


def _prepare_logprobs(sampling_params: SamplingParams, prompt_tokens: int) -> bool:
    """Have vLLM keep log probabilities in flat lists, a tenth of the work of its objects; return
    whether there are any. Raises `RequestRefused` for too many of an echoed prompt."""
    of_prompt = sampling_params.prompt_logprobs
    if of_prompt is not None:
        if refusal := echo_refusal(prompt_tokens, sampling_params.n, of_prompt):
            raise RequestRefused(refusal)
    elif sampling_params.logprobs is not None:
        sampling_params.flat_logprobs = True
    return sampling_params.logprobs is not None
