"""vLLM's chat object with a fast path for plain text, which is what most streams are.

vLLM builds and serializes four pydantic objects for each token. Where neither logprobs, tools,
reasoning nor several choices are in play, all of a stream's deltas differ in their text alone: one
is serialized by vLLM, and the text of the others is put in its place. The first, the last and the
usage chunk are vLLM's as ever. Whole answers get their log probabilities in pieces, see `logprobs`.
The engine contract compares all of it with vLLM's own path.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any, ClassVar, Final

from vllm.entrypoints.generate.base.protocol import DeltaMessage
from vllm.entrypoints.openai.chat_completion.protocol import (
    ChatCompletionRequest,
    ChatCompletionResponseStreamChoice,
    ChatCompletionStreamResponse,
)
from vllm.entrypoints.openai.chat_completion.serving import (
    OpenAIServingChat,
    _make_prompt_tokens_details,
)
from vllm.entrypoints.serve.engine.protocol import UsageInfo
from vllm.entrypoints.serve.utils.api_utils import should_include_usage
from vllm.outputs import RequestOutput

from gpu_workers.protocol.text_event import text_event
from gpu_workers.vllm.endpoints.logprobs import chat_logprobs
from gpu_workers.vllm.parts import Part

_PLACE: Final = "\x00"


class PlainTextChat(OpenAIServingChat):  # type: ignore[misc]  # vLLM is not seen here
    """Answers as `OpenAIServingChat` does, with less work for each token."""

    is_enabled: ClassVar[bool] = True

    @classmethod
    def over(cls, chat: OpenAIServingChat) -> "PlainTextChat":
        """Return the same object, set up by vLLM, under this class."""
        plain = cls.__new__(cls)
        plain.__dict__.update(chat.__dict__)
        return plain

    def chat_completion_stream_generator(
        self,
        request: ChatCompletionRequest,
        result_generator: AsyncIterator[RequestOutput],
        request_id: str,
        model_name: str,
        *arguments: Any,
        **options: Any,
    ) -> AsyncGenerator[str, None]:
        generation = self.engine_client.generation_of(request_id)
        is_relied_on = Part.CHAT_FAST_PATH not in generation.without
        if self.is_enabled and is_relied_on and self._is_plain(request):
            return self._stream_plain_text(request, result_generator, request_id, model_name)
        own: AsyncGenerator[str, None] = super().chat_completion_stream_generator(
            request, result_generator, request_id, model_name, *arguments, **options
        )
        return own

    async def chat_completion_full_generator(
        self,
        request: ChatCompletionRequest,
        result_generator: AsyncIterator[RequestOutput],
        request_id: str,
        *arguments: Any,
        parser: Any = None,
        **options: Any,
    ) -> Any:
        outputs: list[Any] = []
        generation = self.engine_client.generation_of(request_id)
        is_relied_on = Part.CHAT_FAST_PATH not in generation.without
        if self.is_enabled and is_relied_on and request.logprobs:
            result_generator = _with_last_outputs(result_generator, outputs)
            # As vLLM has it: without the reasoning there are none.
            if parser is None or request.include_reasoning:
                generation.logprobs = partial(
                    chat_logprobs,
                    outputs,
                    partial(self._render_logprobs, request),
                    1 + (request.top_logprobs or 0),
                )
            request = request.model_copy(update={"logprobs": False})
        return await super().chat_completion_full_generator(
            request, result_generator, request_id, *arguments, parser=parser, **options
        )

    def _render_logprobs(
        self, request: ChatCompletionRequest, output: Any, start: int, end: int
    ) -> Any:
        return self._create_chat_logprobs(
            token_ids=output.token_ids[start:end],
            top_logprobs=output.logprobs[start:end],
            num_output_top_logprobs=request.top_logprobs,
            tokenizer=self.renderer.tokenizer,
            return_as_token_id=request.return_tokens_as_token_ids,
        )

    def _is_plain(self, request: ChatCompletionRequest) -> bool:
        options = request.stream_options
        return (
            request.n in (None, 1)
            and not request.logprobs
            and not request.echo
            and not request.return_token_ids
            and not request.return_prompt_text
            and request.include_reasoning
            and not (options and options.continuous_usage_stats)
            and not self.enable_force_include_usage
            and not self.enable_log_outputs
            and not self.enable_per_request_metrics
            and not self._include_reasoning_tokens_details
            and self.engine_client.vllm_config.speculative_config is None
            and self._leaves_text_alone(request)
        )

    def _leaves_text_alone(self, request: ChatCompletionRequest) -> bool:
        """Tell whether the tool parser passes text on unchanged: no tools, and no rewriting one."""
        if self.parser_cls is None:
            return True
        tool_parser = self.parser_cls.tool_parser_cls
        return request.tool_choice == "none" and not getattr(
            tool_parser, "engine_based_streaming", True
        )

    async def _stream_plain_text(
        self,
        request: ChatCompletionRequest,
        results: AsyncIterator[RequestOutput],
        request_id: str,
        model_name: str,
    ) -> AsyncGenerator[str, None]:
        """Yield `data: ` events like vLLM's. An engine error makes no event: `Generation` has it,
        and the caller handles it."""
        head = {
            "id": request_id,
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model_name,
        }
        form = _delta_form(head)
        skips_empty = self.parser_cls is not None
        include_usage, _ = should_include_usage(request.stream_options, False)
        generation = self.engine_client.generation_of(request_id)
        prompt_tokens = 0
        cached_tokens = created_tokens = None
        is_first, is_diverted = True, False
        async for result in results:
            if is_first:
                is_first = False
                prompt_tokens = len(result.prompt_token_ids or ())
                cached_tokens = result.num_cached_tokens
                created_tokens = result.num_cache_creation_tokens
                yield _role_chunk(head, self.get_chat_request_role(request))
            (output,) = result.outputs
            text = output.text
            if output.finish_reason is not None:
                self._raise_if_error(output.finish_reason, request_id)
                delta = DeltaMessage() if skips_empty and not text else DeltaMessage(content=text)
                fingerprint = None if include_usage else self.system_fingerprint
                yield _last_chunk(head, delta, output, fingerprint)
            elif generation.completion_tokens and (text or not skips_empty):
                yield f"data: {text_event(form, text).decode()}\n\n"
            is_diverted = is_diverted or generation.divert(form, skips_empty=skips_empty)
        if include_usage:
            completion_tokens = generation.completion_tokens
            usage = UsageInfo(
                prompt_tokens=prompt_tokens,
                completion_tokens=completion_tokens,
                total_tokens=prompt_tokens + completion_tokens,
                completion_tokens_details=None,
            )
            usage.prompt_tokens_details = _make_prompt_tokens_details(
                self.enable_prompt_tokens_details, cached_tokens, created_tokens, None
            )
            yield _usage_chunk(head, usage, self.system_fingerprint)


async def _with_last_outputs(
    results: AsyncIterator[RequestOutput], outputs: list[Any]
) -> AsyncIterator[RequestOutput]:
    """Pass the results on, and keep the outputs of the last one."""
    async for result in results:
        outputs[:] = result.outputs
        yield result


def _delta_form(head: dict[str, Any]) -> tuple[bytes, bytes]:
    """Return what precedes and follows the text in a delta's JSON, as vLLM itself writes it."""
    choice = ChatCompletionResponseStreamChoice(
        index=0,
        delta=DeltaMessage(content=_PLACE),
        logprobs=None,
        finish_reason=None,
        token_ids=None,
    )
    chunk = ChatCompletionStreamResponse(**head, choices=[choice]).model_dump_json(
        exclude_unset=True
    )
    before, after = chunk.encode().split(b'"\\u0000"')
    return before, after


def _role_chunk(head: dict[str, Any], role: str) -> str:
    choice = ChatCompletionResponseStreamChoice(
        index=0, delta=DeltaMessage(role=role, content=""), logprobs=None, finish_reason=None
    )
    return _event(
        ChatCompletionStreamResponse(
            **head, choices=[choice], prompt_token_ids=None, prompt_text=None
        )
    )


def _last_chunk(
    head: dict[str, Any], delta: DeltaMessage, output: Any, fingerprint: str | None
) -> str:
    choice = ChatCompletionResponseStreamChoice(
        index=0,
        delta=delta,
        logprobs=None,
        finish_reason=output.finish_reason,
        stop_reason=output.stop_reason,
        token_ids=None,
    )
    chunk = ChatCompletionStreamResponse(**head, choices=[choice])
    if fingerprint is not None:
        chunk.system_fingerprint = fingerprint
    return _event(chunk)


def _usage_chunk(head: dict[str, Any], usage: UsageInfo, fingerprint: str | None) -> str:
    chunk = ChatCompletionStreamResponse(
        **head, choices=[], usage=usage, system_fingerprint=fingerprint, metrics=None
    )
    return f"data: {chunk.model_dump_json(exclude_unset=True, exclude_none=True)}\n\n"


def _event(chunk: ChatCompletionStreamResponse) -> str:
    return f"data: {chunk.model_dump_json(exclude_unset=True)}\n\n"
