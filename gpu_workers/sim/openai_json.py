"""OpenAI's JSON as the simulated engine writes it."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from gpu_workers.protocol.messages import Api, Envelope, TokenUsage

Choice = dict[str, Any]


class AnswerJson:
    """OpenAI's JSON for one request, in both its shapes."""

    def __init__(self, envelope: Envelope, *, includes_usage: bool) -> None:
        self._is_chat = envelope.api is Api.CHAT_COMPLETIONS
        self._model = envelope.model
        prefix = "chatcmpl" if self._is_chat else "cmpl"
        self._id = f"{prefix}-{envelope.request_id}"
        self._created = int(time.time())
        self._encode = msgspec.json.Encoder().encode
        self.includes_usage = envelope.stream and includes_usage

    def opening_chunks(self, choices: int) -> list[bytes]:
        """The role of each choice; only chats have one."""
        if not self._is_chat:
            return []
        delta = {"role": "assistant", "content": ""}
        return [self._chunk_of(index, {"delta": delta}, None) for index in range(choices)]

    def chunk(self, index: int, text: str, finish_reason: str | None) -> bytes:
        content = {"delta": {"content": text}} if self._is_chat else {"text": text}
        return self._chunk_of(index, content, finish_reason)

    def usage_chunk(self, usage: TokenUsage) -> bytes:
        return self._encode(self._head(chunk=True) | {"choices": [], "usage": _usage_json(usage)})

    def body(self, answers: Sequence[tuple[str, str]], usage: TokenUsage) -> bytes:
        """Of each choice its text and finish reason."""
        choices = [
            self._choice(
                index,
                {"message": {"role": "assistant", "content": text}}
                if self._is_chat
                else {"text": text},
                finish_reason,
            )
            for index, (text, finish_reason) in enumerate(answers)
        ]
        return self._encode(
            self._head(chunk=False) | {"choices": choices, "usage": _usage_json(usage)}
        )

    def _chunk_of(self, index: int, content: Choice, finish_reason: str | None) -> bytes:
        choice = self._choice(index, content, finish_reason)
        return self._encode(self._head(chunk=True) | {"choices": [choice]})

    def _choice(self, index: int, content: Choice, finish_reason: str | None) -> Choice:
        return {"index": index, **content, "logprobs": None, "finish_reason": finish_reason}

    def _head(self, *, chunk: bool) -> dict[str, Any]:
        kind = "text_completion"
        if self._is_chat:
            kind = "chat.completion.chunk" if chunk else "chat.completion"
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}


def _usage_json(usage: TokenUsage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
