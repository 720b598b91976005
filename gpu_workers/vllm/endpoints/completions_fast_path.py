"""vLLM's completions object with a fast path for plain text, as `chat_fast_path` is for chat.

Where neither logprobs, echo nor several choices or prompts are in play, all events of a stream but
the last differ in their text alone. Errors make no event: `Generation` has them.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any, ClassVar, Final

from vllm.entrypoints.openai.completion.protocol import (
    CompletionRequest,
    CompletionResponseStreamChoice,
    CompletionStreamResponse,
)
from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
from vllm.entrypoints.serve.engine.protocol import PromptTokenUsageInfo, UsageInfo
from vllm.entrypoints.serve.utils.api_utils import should_include_usage
from vllm.outputs import RequestOutput

from gpu_workers.protocol.text_event import text_event
from gpu_workers.vllm.endpoints.logprobs import completion_logprobs
from gpu_workers.vllm.parts import Part

_PLACE: Final = "\x00"


class PlainTextCompletion(OpenAIServingCompletion):  # type: ignore[misc]  # vLLM is not seen here
    """Answers as `OpenAIServingCompletion` does, with less work for each token; log probabilities
    are rendered in pieces."""

    is_enabled: ClassVar[bool] = True

    @classmethod
    def over(cls, completion: OpenAIServingCompletion) -> "PlainTextCompletion":
        """Return the same object, set up by vLLM, under this class."""
        plain = cls.__new__(cls)
        plain.__dict__.update(completion.__dict__)
        return plain

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
        generation = self.engine_client.generation_of(request_id)
        is_relied_on = Part.CHAT_FAST_PATH not in generation.without
        if self.is_enabled and is_relied_on and num_prompts == 1 and self._is_plain(request):
            head = {
                "id": request_id,
                "object": "text_completion",
                "created": created_time,
                "model": model_name,
            }
            return self._stream_plain_text(request, result_generator, request_id, head)
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
        # Those of an echoed prompt are few, and mixed with the others.
        if self.is_enabled and request.logprobs is not None and not request.echo:
            self.engine_client.generation_of(request_id).logprobs = partial(
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
        return self._create_completion_logprobs(
            token_ids=output.token_ids[start:end],
            top_logprobs=output.logprobs[start:end],
            num_output_top_logprobs=request.logprobs,
            tokenizer=self.renderer.tokenizer,
            return_as_token_id=request.return_tokens_as_token_ids,
        )

    def _is_plain(self, request: CompletionRequest) -> bool:
        options = request.stream_options
        return (
            request.n in (None, 1)
            and request.logprobs is None
            and not request.echo
            and not request.return_token_ids
            and not (options and options.continuous_usage_stats)
            and not self.enable_force_include_usage
            and not self.enable_per_request_metrics
            and self.engine_client.vllm_config.speculative_config is None
        )

    async def _stream_plain_text(
        self,
        request: CompletionRequest,
        results: AsyncIterator[tuple[int, RequestOutput]],
        request_id: str,
        head: dict[str, Any],
    ) -> AsyncGenerator[str, None]:
        """Yield `data: ` events like vLLM's."""
        before, after = _chunk(head, _PLACE).model_dump_json(exclude_unset=True).split('"\\u0000"')
        form = before.encode(), after.encode()
        include_usage, _ = should_include_usage(request.stream_options, False)
        generation = self.engine_client.generation_of(request_id)
        prompt_tokens, cached_tokens = 0, None
        is_first, is_diverted = True, False
        async for _, result in results:
            if is_first:
                is_first = False
                prompt_tokens = len(result.prompt_token_ids or ())
                cached_tokens = result.num_cached_tokens
            (output,) = result.outputs
            if output.finish_reason is not None:
                self._raise_if_error(output.finish_reason, request_id)
                chunk = _chunk(head, output.text, output.finish_reason, output.stop_reason)
                if self.system_fingerprint is not None and not include_usage:
                    chunk.system_fingerprint = self.system_fingerprint
                yield f"data: {chunk.model_dump_json(exclude_unset=True)}\n\n"
            elif generation.completion_tokens:
                yield f"data: {text_event(form, output.text).decode()}\n\n"
            is_diverted = is_diverted or generation.divert(form, skips_empty=False)
        if include_usage:
            completion_tokens = generation.completion_tokens
            usage = UsageInfo(
                prompt_tokens=prompt_tokens,
                completion_tokens=completion_tokens,
                total_tokens=prompt_tokens + completion_tokens,
            )
            if self.enable_prompt_tokens_details and cached_tokens is not None:
                usage.prompt_tokens_details = PromptTokenUsageInfo(cached_tokens=cached_tokens)
            last = CompletionStreamResponse(
                **head,
                choices=[],
                usage=usage,
                system_fingerprint=self.system_fingerprint,
                metrics=None,
            )
            yield f"data: {last.model_dump_json(exclude_none=True)}\n\n"


def _chunk(
    head: dict[str, Any],
    text: str,
    finish_reason: str | None = None,
    stop_reason: int | str | None = None,
) -> CompletionStreamResponse:
    choice = CompletionResponseStreamChoice(
        index=0,
        text=text,
        logprobs=None,
        finish_reason=finish_reason,
        stop_reason=stop_reason,
        prompt_token_ids=None,
        token_ids=None,
    )
    return CompletionStreamResponse(**head, choices=[choice])
