"""The events of a chat's stream, byte for byte as vLLM writes them.

An event about a text alone, or about a text and its log probabilities, is a prepared one. All
others are of vLLM's own types.
"""

from typing import Any

from vllm.entrypoints.generate.base.protocol import DeltaMessage
from vllm.entrypoints.openai.chat_completion.protocol import (
    ChatCompletionNamedToolChoiceParam,
    ChatCompletionRequest,
    ChatCompletionResponseStreamChoice,
    ChatCompletionStreamResponse,
)
from vllm.entrypoints.serve.engine.protocol import UsageInfo
from vllm.entrypoints.serve.utils.tool_calls_utils import maybe_filter_parallel_tool_calls

from gpu_workers.vllm.endpoints.prepared import PLACE, PreparedEvent

_OF_A_TEXT = frozenset({"content", "tool_calls"})


class ChatEvents:
    """Writes one stream's events: its role, its deltas, the last of them, and its usage."""

    def __init__(self, request: ChatCompletionRequest, head: dict[str, Any]) -> None:
        """`head`: what every event begins with."""
        self._request = request
        self._head = head
        self._has_called_tools = False
        self.prepared = PreparedEvent(self._chunk(DeltaMessage(content=PLACE), None, None))

    def role(self, role: str) -> str:
        choice = ChatCompletionResponseStreamChoice(
            index=0, delta=DeltaMessage(role=role, content=""), logprobs=None, finish_reason=None
        )
        chunk = ChatCompletionStreamResponse(
            **self._head, choices=[choice], prompt_token_ids=None, prompt_text=None
        )
        return _event(chunk)

    def delta(self, delta: DeltaMessage | str | None, logprobs: Any) -> str | None:
        """Return an event before the last; None where vLLM sends none. `delta`: a text, or what
        the parser made of it, if anything."""
        if isinstance(delta, str):
            return self.prepared.event(delta, logprobs)
        if delta is None:
            return None if logprobs is None else _event(self._chunk(DeltaMessage(), logprobs, None))
        if _is_text_alone(delta):
            return self.prepared.event(delta.content, logprobs)
        self._note_tools(delta)
        return _event(self._chunk(delta, logprobs, None))

    def last(
        self,
        delta: DeltaMessage | str | None,
        logprobs: Any,
        output: Any,
        fingerprint: str | None,
    ) -> str:
        if delta is None or isinstance(delta, str):
            delta = DeltaMessage() if delta is None else DeltaMessage(content=delta)
        self._note_tools(delta)
        reason = output.finish_reason
        is_named = isinstance(self._request.tool_choice, ChatCompletionNamedToolChoiceParam)
        if self._has_called_tools and reason == "stop" and not is_named:
            reason = "tool_calls"
        chunk = self._chunk(delta, logprobs, reason, stop_reason=output.stop_reason)
        if fingerprint is not None:
            chunk.system_fingerprint = fingerprint
        return _event(chunk)

    def usage(self, usage: UsageInfo, fingerprint: str | None) -> str:
        chunk = ChatCompletionStreamResponse(
            **self._head, choices=[], usage=usage, system_fingerprint=fingerprint, metrics=None
        )
        return f"data: {chunk.model_dump_json(exclude_unset=True, exclude_none=True)}\n\n"

    def _note_tools(self, delta: DeltaMessage) -> None:
        self._has_called_tools = self._has_called_tools or bool(delta.tool_calls)

    def _chunk(
        self, delta: DeltaMessage, logprobs: Any, finish_reason: str | None, **fields: Any
    ) -> ChatCompletionStreamResponse:
        choice = ChatCompletionResponseStreamChoice(
            index=0,
            delta=delta,
            logprobs=logprobs,
            finish_reason=finish_reason,
            token_ids=None,
            **fields,
        )
        choice = maybe_filter_parallel_tool_calls(choice, self._request)
        return ChatCompletionStreamResponse(**self._head, choices=[choice])


def _is_text_alone(delta: DeltaMessage) -> bool:
    """Tell whether nothing but a text would be written of a delta."""
    return (
        type(delta) is DeltaMessage
        and delta.content is not None
        and not delta.tool_calls
        and delta.model_fields_set <= _OF_A_TEXT
    )


def _event(chunk: ChatCompletionStreamResponse) -> str:
    return f"data: {chunk.model_dump_json(exclude_unset=True)}\n\n"
