"""The thin proxy between vLLM's serving objects and its engine.

The serving objects call `generate` as they would on AsyncLLM. On the way in it sets what is ours
to set (priority, bounds); on the way out it counts, so that a result says what the engine really
generated, also after an abort. It runs for every token: nothing but counting belongs here.
"""

from collections.abc import AsyncGenerator, Callable
from typing import Any

from vllm.exceptions import VLLMValidationError
from vllm.outputs import RequestOutput
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.output_processor import RequestOutputCollector
from vllm.v1.engine.parallel_sampling import ParentRequest

from gpu_workers.engine import Emit, Output
from gpu_workers.protocol.messages import Envelope, TokenUsage
from gpu_workers.requests.prompt_bound import BeyondReservation, prompt_refusal
from gpu_workers.vllm.resumption import resume


class Generation:
    """What the engine has done for one request so far. Times are Unix milliseconds."""

    __slots__ = (
        "cached_tokens",
        "completion_tokens",
        "emit",
        "engine_ids",
        "envelope",
        "error",
        "finish_reason",
        "first_token_at_ms",
        "has_one_choice",
        "has_one_prompt",
        "is_aborted",
        "new_token_ids",
        "prompt_tokens",
        "queue",
        "reasoning_tokens",
        "rendered_tokens",
        "replay",
        "tells_usage",
    )

    def __init__(self, envelope: Envelope, emit: Emit | None = None) -> None:
        self.envelope = envelope
        self.emit = emit
        self.queue: RequestOutputCollector | None = None
        self.replay: RequestOutput | None = None  # what the next output comes after
        self.engine_ids: list[str] = []
        self.rendered_tokens = 0  # of all prompts, before any is run
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.completion_tokens = 0
        self.reasoning_tokens = 0  # known at the end, where there is a reasoning parser
        self.new_token_ids: list[int] = []
        self.first_token_at_ms: int | None = None
        self.finish_reason: str | None = None
        self.error: Exception | None = None
        self.is_aborted = False
        self.has_one_choice = True
        self.has_one_prompt = True
        self.tells_usage = True  # to its client, at the end of a stream

    def usage(self) -> TokenUsage:
        return TokenUsage(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=self.completion_tokens,
            reasoning_tokens=min(self.reasoning_tokens, self.completion_tokens),
        )

    def take_token_ids(self) -> list[int]:
        """The ids since the last call."""
        taken, self.new_token_ids = self.new_token_ids, []
        return taken

    def divert(self, chunk_of: Callable[[str], bytes | None]) -> bool:
        """From now on the engine's outputs go to `emit` as they are made, without waking the
        task that asked for them. `chunk_of` makes the event of a text. The last output still goes
        through the queue, as does everything that finds it filled, so that the order stays. False
        while an output is under way that would be overtaken: ask again.
        """
        queue, emit = self.queue, self.emit
        if self.replay is not None:
            return False
        if queue is None or emit is None:
            return True
        enqueue = queue.put

        def put(output: Any) -> None:
            if queue.output is not None or type(output) is not RequestOutput or output.finished:
                enqueue(output)
                return
            try:
                self.record(output)
                chunk = None if self.is_aborted else chunk_of(output.outputs[0].text)
                if chunk is not None:
                    emit(
                        Output(
                            chunks=[chunk],
                            completion_tokens=self.completion_tokens,
                            token_ids=self.take_token_ids(),
                        )
                    )
            except Exception as error:  # noqa: BLE001 - it must not end the engine's own task
                enqueue(error)

        queue.put = put
        return True

    def record(self, output: RequestOutput) -> None:
        """Count one output; of a request with several choices it may hold several of them."""
        for choice in output.outputs:
            token_ids = choice.token_ids
            self.completion_tokens += len(token_ids)
            if self.has_one_choice:
                self.new_token_ids.extend(token_ids)
            if choice.finish_reason is not None:
                self._ended(output)

    def started(self, output: RequestOutput) -> None:
        """Count what the first output of a prompt tells."""
        self.prompt_tokens += len(output.prompt_token_ids or ())
        self.cached_tokens += output.num_cached_tokens or 0

    def _ended(self, output: RequestOutput) -> None:
        self.finish_reason = output.outputs[0].finish_reason
        metrics: Any = output.metrics
        if self.first_token_at_ms is None and metrics and metrics.first_token_latency:
            first_token_at = metrics.arrival_time + metrics.first_token_latency
            self.first_token_at_ms = int(first_token_at * 1000)


class CountingLLM(AsyncLLM):  # type: ignore[misc]  # vLLM is not seen here
    """AsyncLLM under our ids: `generations` is keyed by the request's id, which the serving
    objects wrap as `chatcmpl-<id>` or `cmpl-<id>-<prompt>`."""

    generations: dict[str, Generation]

    def __del__(self) -> None:
        """The engine is shut down by name; AsyncLLM's own attempt fails when Python is ending."""

    def generate(
        self,
        prompt: Any,
        sampling_params: SamplingParams,
        request_id: str,
        **options: Any,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Called for each prompt of a request before the first of them is begun."""
        generation = self.generation_of(request_id)
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
        try:
            _bound(sampling_params, _room(prompt, envelope))
            if refusal := prompt_refusal(envelope, generation.rendered_tokens):
                raise BeyondReservation(refusal)
            outputs = super().generate(prompt, sampling_params, request_id, **options)
            async for output in outputs:
                generation.started(output)
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
        except Exception as error:
            generation.error = error
            raise

    async def add_request(self, request_id: str, *arguments: Any, **options: Any) -> Any:
        """Notes the queue of a request's outputs, for `Generation.divert`."""
        queue = await super().add_request(request_id, *arguments, **options)
        self.generation_of(request_id).queue = queue
        return queue

    async def _add_request(
        self,
        request: EngineCoreRequest,
        prompt: str | None,
        parent: ParentRequest | None,
        index: int,
        queue: RequestOutputCollector,
    ) -> None:
        """Where vLLM hands a request to its output processor and its engine."""
        generation = self.generation_of(request.external_req_id)
        token_ids = generation.envelope.resumed_token_ids
        if not token_ids:
            await super()._add_request(request, prompt, parent, index, queue)
            return
        processor, context = self.output_processor, self.vllm_config.model_config.max_model_len
        processor.add_request(request, prompt, parent, index, queue)
        resumption = resume(processor, request, token_ids, context)
        if resumption.rest is None:
            queue.put(resumption.replay)
            return
        generation.replay = resumption.replay
        await self.engine_core.add_request_async(resumption.rest)

    def generation_of(self, request_id: str) -> Generation:
        """By the id that a serving object gave it."""
        return self.generations[request_id.split("-", 2)[1]]

    async def abort_generation(self, generation: Generation) -> None:
        """Abort by id, so that the generator still yields what was generated."""
        generation.is_aborted = True
        if generation.engine_ids:
            await self.abort(list(generation.engine_ids))


def _room(prompt: Any, envelope: Envelope) -> int:
    """The output that was reserved, less what the tier's context has no room for."""
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
    """Enforce the bound that was reserved. `min_tokens` above it would never let a request end."""
    wanted = sampling_params.max_tokens
    bound = max_output_tokens if wanted is None else min(wanted, max_output_tokens)
    if sampling_params.min_tokens > bound:
        raise VLLMValidationError(
            f"min_tokens must be at most the {bound} tokens that this request may generate.",
            parameter="min_tokens",
            value=sampling_params.min_tokens,
        )
    sampling_params.max_tokens = bound
