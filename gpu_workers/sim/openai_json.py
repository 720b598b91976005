"""OpenAI's JSON as the simulated engine writes it, around what each API has of its own."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec

from gpu_workers.protocol.messages import Envelope, TokenUsage
from gpu_workers.requests.response_model import response_model
from gpu_workers.sim.endpoints.endpoint import Content, SharedFields, SimEndpoint


class AnswerJson:
    """The JSON of one request, in both its shapes."""

    def __init__(self, endpoint: SimEndpoint, envelope: Envelope, fields: SharedFields) -> None:
        self._endpoint = endpoint
        self._model = response_model(envelope, fields.model)
        self._id = f"{endpoint.id_prefix}-{envelope.request_id}"
        self._created = int(time.time())
        self._encode = msgspec.json.Encoder().encode
        self.includes_usage = envelope.stream and fields.includes_usage

    def opening_chunks(self, choices: int) -> list[bytes]:
        """Return what comes before the first token of each choice."""
        content = self._endpoint.opening_content()
        if content is None:
            return []
        return [self._chunk_of(index, content, None) for index in range(choices)]

    def chunk(self, index: int, text: str, finish_reason: str | None) -> bytes:
        return self._chunk_of(index, self._endpoint.chunk_content(text), finish_reason)

    def usage_chunk(self, usage: TokenUsage) -> bytes:
        return self._encode(
            self._head(self._endpoint.chunk_object_name)
            | {"choices": [], "usage": _usage_json(usage)}
        )

    def body(self, answers: Sequence[tuple[str, str]], usage: TokenUsage) -> bytes:
        """Return the whole answer, of each choice's text and finish reason."""
        choices = [
            _choice(index, self._endpoint.answer_content(text), finish_reason)
            for index, (text, finish_reason) in enumerate(answers)
        ]
        return self._encode(
            self._head(self._endpoint.object_name)
            | {"choices": choices, "usage": _usage_json(usage)}
        )

    def _chunk_of(self, index: int, content: Content, finish_reason: str | None) -> bytes:
        choice = _choice(index, content, finish_reason)
        return self._encode(self._head(self._endpoint.chunk_object_name) | {"choices": [choice]})

    def _head(self, object_name: str) -> dict[str, Any]:
        return {
            "id": self._id,
            "object": object_name,
            "created": self._created,
            "model": self._model,
        }


def _choice(index: int, content: Content, finish_reason: str | None) -> dict[str, Any]:
    return {"index": index, **content, "logprobs": None, "finish_reason": finish_reason}


def _usage_json(usage: TokenUsage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }
