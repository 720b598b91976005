"""POST /v1/chat/completions."""

from dataclasses import replace
from typing import Any, ClassVar, Final

import msgspec
from starlette.datastructures import State
from vllm.entrypoints.generate.base.protocol import StreamOptions
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.serve.engine.protocol import ErrorResponse

from gpu_workers.vllm.endpoints.endpoint import (
    Endpoint,
    FastPath,
    ParsedRequest,
    RenderedAnswer,
    event_json,
)
from gpu_workers.vllm.generation import Generation
from gpu_workers.vllm.parts import Part

_PROBE_TOOL: Final = {"type": "function", "function": {"name": "f", "parameters": {}}}
_decode_event: Final = msgspec.json.Decoder(dict[str, Any]).decode


def _fast_path() -> type[FastPath] | None:
    """Return the short path; None where another vLLM has what it builds on elsewhere: the probes
    report that."""
    try:
        from gpu_workers.vllm.endpoints.chat_fast_path import ShorterChat
    except ImportError:
        return None
    return ShorterChat


class ChatEndpoint(Endpoint):
    """Messages through the model's template, with tools and reasoning where it has parsers."""

    begins_with_role = True
    needs_template = True
    fast_path: ClassVar[type[FastPath] | None] = _fast_path()
    fast_path_part = Part.CHAT_FAST_PATH
    question = {"messages": [{"role": "user", "content": "What is water?"}], "temperature": 0}
    kinds = {"logprobs": {"logprobs": True, "top_logprobs": 20}, "tools": {"tools": [_PROBE_TOOL]}}
    streams = ({"logprobs": True, "top_logprobs": 1}, {"tools": [_PROBE_TOOL]})

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self._renderer = state.online_renderer
        self._has_reasoning = bool(state.args.reasoning_parser)

    def serving_object(self, state: State) -> Any:
        return state.openai_serving_chat

    def parse(self, body: dict[str, Any]) -> ParsedRequest:
        """Parse a request; always ask for a stream's usage if the model reasons, as only that
        counts reasoning tokens. Raises `pydantic.ValidationError`."""
        request = ChatCompletionRequest.model_validate(body)
        options = request.stream_options
        hides_usage = bool(
            request.stream and self._has_reasoning and not (options and options.include_usage)
        )
        if hides_usage:
            request.stream_options = StreamOptions(include_usage=True)
        return ParsedRequest(
            vllm_request=request, prompts=1, sequences=request.n or 1, hides_usage=hides_usage
        )

    async def ask(self, vllm_request: Any) -> Any:
        return await self._serving_object.create_chat_completion(vllm_request)

    async def prompt_overhead(self) -> int:
        """Return the most tokens that the template adds to one message, with a tool in the request
        or without; 0 for a base model, which has no template."""
        overheads = [0]
        for options in ({}, {"tools": [_PROBE_TOOL]}):
            try:
                overheads.append(await self._rendered_length(options) - 1)
            except Exception:  # noqa: BLE001 - no template, or none for tools
                break
        return max(overheads)

    def render_event(self, generation: Generation, event: str) -> bytes | None:
        # Each token would pay for the search, so only where there is any reasoning.
        if self._has_reasoning and '"choices":[]' in event:
            generation.reasoning_tokens = _reasoning_tokens(event)
            if generation.hides_usage:
                return None
        if "tool_calls" in event and '"finish_reason":"tool_calls"' in event:
            generation.rendered_finish_reason = "tool_calls"
        return event_json(event)

    async def render_answer(self, generation: Generation, answer: Any) -> RenderedAnswer:
        rendered = await super().render_answer(generation, answer)
        details = getattr(answer.usage, "completion_tokens_details", None)
        return replace(rendered, reasoning_tokens=details.reasoning_tokens if details else 0)

    async def _rendered_length(self, options: dict[str, Any]) -> int:
        message = {"role": "user", "content": "x"}
        request = ChatCompletionRequest.model_validate({"messages": [message], **options})
        rendered = await self._renderer.render_chat(request)
        if isinstance(rendered, ErrorResponse):
            raise ValueError(rendered.error.message)
        _, (engine_input,) = rendered
        return len(engine_input["prompt_token_ids"])


def _reasoning_tokens(event: str) -> int:
    """Return the reasoning tokens of a stream's usage event."""
    usage = _decode_event(event_json(event)).get("usage") or {}
    details = usage.get("completion_tokens_details") or {}
    return details.get("reasoning_tokens") or 0
