"""POST /v1/completions."""

from typing import Any, Final

import msgspec

from gpu_workers.sim.endpoints.endpoint import (
    BYTES_PER_PROMPT_TOKEN,
    Content,
    SharedFields,
    SimEndpoint,
    SimRequest,
)

# OpenAI's default of `max_tokens`, of this API alone.
DEFAULT_MAX_TOKENS: Final = 16


class _Body(SharedFields):
    prompt: str | list[Any] = ""


class SimCompletionsEndpoint(SimEndpoint):
    """One text, one list of token ids, or a list of either."""

    id_prefix = "cmpl"
    object_name = "text_completion"
    chunk_object_name = "text_completion"

    def parse(self, body: bytes) -> SimRequest:
        completion = msgspec.json.decode(body, type=_Body)
        named = completion.max_tokens
        return SimRequest(
            prompts=_texts(completion.prompt),
            messages=0,
            max_tokens=DEFAULT_MAX_TOKENS if named is None else named,
            fields=completion,
        )

    def chunk_content(self, text: str) -> Content:
        return {"text": text}

    def answer_content(self, text: str) -> Content:
        return {"text": text}


def _texts(prompt: str | list[Any]) -> list[bytes]:
    if isinstance(prompt, str):
        return [prompt.encode()]
    if prompt and isinstance(prompt[0], int):
        return [_text_of_tokens(prompt)]
    return [each.encode() if isinstance(each, str) else _text_of_tokens(each) for each in prompt]


def _text_of_tokens(token_ids: list[int]) -> bytes:
    return b"".join(token.to_bytes(BYTES_PER_PROMPT_TOKEN, "big") for token in token_ids)
