"""POST /v1/chat/completions."""

from typing import Any

import msgspec

from gpu_workers.sim.endpoints.endpoint import Content, SharedFields, SimEndpoint, SimRequest


class _Body(SharedFields):
    messages: list[dict[str, Any]] = []
    max_completion_tokens: int | None = None


class SimChatEndpoint(SimEndpoint):
    """Messages, joined to one prompt."""

    id_prefix = "chatcmpl"
    object_name = "chat.completion"
    chunk_object_name = "chat.completion.chunk"

    def parse(self, body: bytes) -> SimRequest:
        chat = msgspec.json.decode(body, type=_Body)
        return SimRequest(
            prompts=[_text_of_all(chat.messages)],
            messages=len(chat.messages),
            max_tokens=chat.max_completion_tokens or chat.max_tokens,
            fields=chat,
        )

    def opening_content(self) -> Content | None:
        return {"delta": {"role": "assistant", "content": ""}}

    def chunk_content(self, text: str) -> Content:
        return {"delta": {"content": text}}

    def answer_content(self, text: str) -> Content:
        return {"message": {"role": "assistant", "content": text}}


def _text_of_all(messages: list[dict[str, Any]]) -> bytes:
    return b"\n".join(
        f"{message.get('role')}: {_text(message.get('content'))}".encode() for message in messages
    )


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return str(content or "")
