"""vLLM's chat object with a shorter path for the streams of one choice.

vLLM builds and serializes four pydantic objects for each token. Where neither reasoning nor several
choices are in play, nearly all of a stream's deltas differ in their text alone, or in that and its
log probabilities: one is serialized by vLLM, and what differs is put in its place, see `prepared`.
Text that nothing changes on its way leaves without waking the task that asked for it. Where there
are tools, vLLM's parser sees every delta, and what it makes of them but text is written by vLLM.
Whole answers get their log probabilities in pieces, see `logprobs`. The engine contract compares
all of it with vLLM's own path.
"""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from functools import partial
from typing import Any

from vllm.entrypoints.generate.base.protocol import DeltaMessage
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.chat_completion.serving import (
    OpenAIServingChat,
    _make_prompt_tokens_details,
)
from vllm.entrypoints.serve.utils.api_utils import should_include_usage
from vllm.outputs import RequestOutput

from gpu_workers.vllm.endpoints.chat_events import ChatEvents
from gpu_workers.vllm.endpoints.endpoint import FastPath
from gpu_workers.vllm.endpoints.logprobs import chat_logprobs
from gpu_workers.vllm.endpoints.prepared import usage_info


class ShorterChat(FastPath, OpenAIServingChat):  # type: ignore[misc]  # vLLM is not seen here
    """Answers as `OpenAIServingChat` does, with less work for each token."""

    def chat_completion_stream_generator(
        self,
        request: ChatCompletionRequest,
        result_generator: AsyncIterator[RequestOutput],
        request_id: str,
        model_name: str,
        *arguments: Any,
        **options: Any,
    ) -> AsyncGenerator[str, None]:
        if self.is_relied_on(self.generation_of(request_id)) and self._is_short(request):
            template_options = options.get("chat_template_kwargs")
            parser = (
                None
                if self._leaves_text_alone(request)
                else self._make_parser(request, self.renderer.tokenizer, template_options)
            )
            return self._stream(request, result_generator, request_id, model_name, parser)
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
        generation = self.generation_of(request_id)
        if self.is_relied_on(generation) and request.logprobs:
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
        return self._logprobs_of(request, output.token_ids[start:end], output.logprobs[start:end])

    def _logprobs_of(self, request: ChatCompletionRequest, token_ids: Any, logprobs: Any) -> Any:
        return self._create_chat_logprobs(
            token_ids=token_ids,
            top_logprobs=logprobs,
            num_output_top_logprobs=request.top_logprobs,
            logprob_token_ids=request.logprob_token_ids,
            tokenizer=self.renderer.tokenizer,
            return_as_token_id=request.return_tokens_as_token_ids,
        )

    def _is_short(self, request: ChatCompletionRequest) -> bool:
        options = request.stream_options
        return (
            request.n in (None, 1)
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
        )

    def _leaves_text_alone(self, request: ChatCompletionRequest) -> bool:
        """Tell whether the tool parser passes text on unchanged: no tools, and no rewriting one."""
        if self.parser_cls is None:
            return True
        tool_parser = self.parser_cls.tool_parser_cls
        return request.tool_choice == "none" and not getattr(
            tool_parser, "engine_based_streaming", True
        )

    async def _stream(
        self,
        request: ChatCompletionRequest,
        results: AsyncIterator[RequestOutput],
        request_id: str,
        model_name: str,
        parser: Any,
    ) -> AsyncGenerator[str, None]:
        """Yield `data: ` events like vLLM's. An engine error makes no event: `Generation` has it,
        and the caller handles it. Raises `RuntimeError` where `parser` fails."""
        head = {
            "id": request_id,
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model_name,
        }
        events = ChatEvents(request, head)
        form = events.prepared.form
        skips_empty = self.parser_cls is not None
        include_usage, _ = should_include_usage(request.stream_options, False)
        generation = self.generation_of(request_id)
        prompt_tokens = 0
        cached_tokens = created_tokens = None
        is_first, is_diverted = True, parser is not None or bool(request.logprobs)
        async for result in results:
            if is_first:
                is_first = False
                prompt_tokens = len(result.prompt_token_ids or ())
                cached_tokens = result.num_cached_tokens
                created_tokens = result.num_cache_creation_tokens
                yield events.role(self.get_chat_request_role(request))
            (output,) = result.outputs
            is_last = output.finish_reason is not None
            if is_last:
                self._raise_if_error(output.finish_reason, request_id)
            logprobs = None
            if request.logprobs:
                logprobs = self._logprobs_of(request, output.token_ids, output.logprobs)
            delta = output.text if output.text or not skips_empty else None
            if parser is not None:
                delta = _parsed(parser, request, result, output)
            if is_last:
                fingerprint = None if include_usage else self.system_fingerprint
                yield events.last(delta, logprobs, output, fingerprint)
            elif generation.completion_tokens and (event := events.delta(delta, logprobs)):
                yield event
            is_diverted = is_diverted or generation.divert(form, skips_empty=skips_empty)
        if include_usage:
            details = _make_prompt_tokens_details(
                self.enable_prompt_tokens_details, cached_tokens, created_tokens, None
            )
            usage = usage_info(prompt_tokens, generation.completion_tokens, details)
            yield events.usage(usage, self.system_fingerprint)


def _parsed(
    parser: Any, request: ChatCompletionRequest, result: RequestOutput, output: Any
) -> DeltaMessage | None:
    """Return what vLLM's parser makes of an output. Raises `RuntimeError` if it fails: the request
    was right, so nobody is told to mend it."""
    try:
        delta: DeltaMessage | None = parser.parse_delta(
            delta_text=output.text,
            delta_token_ids=list(output.token_ids),
            request=request,
            prompt_token_ids=result.prompt_token_ids,
            finished=output.finish_reason is not None,
        )
    except Exception as error:
        raise RuntimeError("vLLM's parser failed") from error
    return delta


async def _with_last_outputs(
    results: AsyncIterator[RequestOutput], outputs: list[Any]
) -> AsyncIterator[RequestOutput]:
    """Pass the results on, and keep the outputs of the last one."""
    async for result in results:
        outputs[:] = result.outputs
        yield result
