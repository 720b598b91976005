"""vLLM's completions object with a shorter path for the streams of one choice, as `chat_fast_path`
is for chat.

Without echo and other choices or prompts, all events of a stream but the last differ in their text
and its log probabilities alone. Errors make no event: `Generation` has them.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any

from vllm.entrypoints.openai.completion.protocol import (
    CompletionRequest,
    CompletionResponseStreamChoice,
    CompletionStreamResponse,
)
from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
from vllm.entrypoints.serve.engine.protocol import PromptTokenUsageInfo
from vllm.entrypoints.serve.utils.api_utils import should_include_usage
from vllm.outputs import RequestOutput

from gpu_workers.vllm.endpoints.endpoint import FastPath
from gpu_workers.vllm.endpoints.logprobs import completion_logprobs
from gpu_workers.vllm.endpoints.prepared import PLACE, PreparedEvent, usage_info


class ShorterCompletion(FastPath, OpenAIServingCompletion):  # type: ignore[misc]  # as for chat
    """Answers as `OpenAIServingCompletion` does, with less work for each token; log probabilities
    of whole answers are rendered in pieces."""

    def completion_stream_generator(
        self,
        request: CompletionRequest,
        engine_inputs: Any,
        result_generator: AsyncIterator[tuple[int, RequestOutput]],
        request_id: str,
        created_time: int,
        model_name: str,
        num_prompts: int,
        **options: Any,
    ) -> AsyncGenerator[str, None]:
        is_relied_on = self.is_relied_on(self.generation_of(request_id))
        if is_relied_on and num_prompts == 1 and self._is_short(request):
            head = {
                "id": request_id,
                "object": "text_completion",
                "created": created_time,
                "model": model_name,
            }
            return self._stream(request, result_generator, request_id, head)
        own: AsyncGenerator[str, None] = super().completion_stream_generator(
            request,
            engine_inputs,
            result_generator,
            request_id,
            created_time,
            model_name,
            num_prompts,
            **options,
        )
        return own

    def request_output_to_completion_response(
        self,
        final_res_batch: list[RequestOutput],
        request: CompletionRequest,
        request_id: str,
        *arguments: Any,
    ) -> Any:
        generation = self.generation_of(request_id)
        # Those of an echoed prompt are few, and mixed with the others.
        if self.is_relied_on(generation) and request.logprobs is not None and not request.echo:
            generation.logprobs = partial(
                completion_logprobs,
                [output for result in final_res_batch for output in result.outputs],
                partial(self._render_logprobs, request),
                1 + request.logprobs,
            )
            request = request.model_copy(update={"logprobs": None})
        return super().request_output_to_completion_response(
            final_res_batch, request, request_id, *arguments
        )

    def _render_logprobs(
        self, request: CompletionRequest, output: Any, start: int, end: int
    ) -> Any:
        return self._logprobs_of(
            request, output.token_ids[start:end], output.logprobs[start:end], 0
        )

    def _logprobs_of(
        self, request: CompletionRequest, token_ids: Any, logprobs: Any, text_offset: int
    ) -> Any:
        return self._create_completion_logprobs(
            token_ids=token_ids,
            top_logprobs=logprobs,
            num_output_top_logprobs=request.logprobs,
            tokenizer=self.renderer.tokenizer,
            logprob_token_ids=request.logprob_token_ids,
            initial_text_offset=text_offset,
            return_as_token_id=request.return_tokens_as_token_ids,
        )

    def _is_short(self, request: CompletionRequest) -> bool:
        options = request.stream_options
        return (
            request.n in (None, 1)
            and not request.echo
            and not request.return_token_ids
            and not (options and options.continuous_usage_stats)
            and not self.enable_force_include_usage
            and not self.enable_per_request_metrics
            and self.engine_client.vllm_config.speculative_config is None
        )

    async def _stream(
        self,
        request: CompletionRequest,
        results: AsyncIterator[tuple[int, RequestOutput]],
        request_id: str,
        head: dict[str, Any],
    ) -> AsyncGenerator[str, None]:
        """Yield `data: ` events like vLLM's."""
        prepared = PreparedEvent(_chunk(head, PLACE))
        include_usage, _ = should_include_usage(request.stream_options, False)
        generation = self.generation_of(request_id)
        prompt_tokens, cached_tokens, text_offset = 0, None, 0
        is_first, is_diverted = True, request.logprobs is not None
        async for _, result in results:
            if is_first:
                is_first = False
                prompt_tokens = len(result.prompt_token_ids or ())
                cached_tokens = result.num_cached_tokens
            (output,) = result.outputs
            is_last = output.finish_reason is not None
            if is_last:
                self._raise_if_error(output.finish_reason, request_id)
            logprobs = None
            if request.logprobs is not None:
                logprobs = self._logprobs_of(
                    request, output.token_ids, output.logprobs, text_offset
                )
                if logprobs.tokens:
                    text_offset = logprobs.text_offset[-1] + len(logprobs.tokens[-1])
            if is_last:
                chunk = _chunk(
                    head, output.text, logprobs, output.finish_reason, output.stop_reason
                )
                if self.system_fingerprint is not None and not include_usage:
                    chunk.system_fingerprint = self.system_fingerprint
                yield f"data: {chunk.model_dump_json(exclude_unset=True)}\n\n"
            elif generation.completion_tokens:
                yield prepared.event(output.text, logprobs)
            is_diverted = is_diverted or generation.divert(prepared.form, skips_empty=False)
        if include_usage:
            details = None
            if self.enable_prompt_tokens_details and cached_tokens is not None:
                details = PromptTokenUsageInfo(cached_tokens=cached_tokens)
            last = CompletionStreamResponse(
                **head,
                choices=[],
                usage=usage_info(prompt_tokens, generation.completion_tokens, details),
                system_fingerprint=self.system_fingerprint,
                metrics=None,
            )
            yield f"data: {last.model_dump_json(exclude_none=True)}\n\n"


def _chunk(
    head: dict[str, Any],
    text: str,
    logprobs: Any = None,
    finish_reason: str | None = None,
    stop_reason: int | str | None = None,
) -> CompletionStreamResponse:
    choice = CompletionResponseStreamChoice(
        index=0,
        text=text,
        logprobs=logprobs,
        finish_reason=finish_reason,
        stop_reason=stop_reason,
        prompt_token_ids=None,
        token_ids=None,
    )
    return CompletionStreamResponse(**head, choices=[choice])
