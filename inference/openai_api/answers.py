"""What the endpoints answer, as the API's description shows it. Nothing is made from these structs:
completions pass as the engine wrote them, and may have more fields than these."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gpu_workers.protocol.policy import Capability, LimitName, OnSaturation, Scope

_Count = Annotated[int, Meta(ge=0)]


class Model(msgspec.Struct, kw_only=True):
    """A model that the key may use. `max_model_len` bounds prompt and output together. `parent` is
    the served model that an adapter changes, null of a served model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: _Count
    capabilities: list[Capability]
    parent: str | None


class ModelList(msgspec.Struct, kw_only=True):
    object: Literal["list"]
    data: list[Model]


class StreamTicket(msgspec.Struct, kw_only=True):
    """Opens one websocket, within `expires_in` seconds: `/ws/v1/stream?ticket=`."""

    object: Literal["stream.ticket"]
    ticket: str
    expires_in: _Count


class LimitsTenant(msgspec.Struct, kw_only=True):
    id: str
    name: str


class LimitsProject(msgspec.Struct, kw_only=True):
    id: str
    name: str
    on_saturation: OnSaturation
    smaller_model: str | None


class LimitsKey(msgspec.Struct, kw_only=True):
    id: str
    scopes: list[Scope]
    expires_at: int | None


class QueueAhead(msgspec.Struct, kw_only=True):
    """What one more request would find; position 0 need not wait, null is not known."""

    object: Literal["queue"]
    model: str
    position: int | None
    expected_wait_ms: int | None
    waiting: int


class LimitUse(msgspec.Struct, kw_only=True):
    """One limit and what is used of it. Times are Unix seconds."""

    object: Literal["limit"]
    scope: str
    limit: LimitName
    unit: Literal["requests", "sequences", "tokens", "nano-dollars"]
    limit_value: int
    used: int
    remaining: int
    resets_at: int | None
    is_hard: bool


class KeyLimits(msgspec.Struct, kw_only=True):
    """All that bounds the caller."""

    object: Literal["limits"]
    tier: str
    tenant: LimitsTenant
    project: LimitsProject
    api_key: LimitsKey
    models: list[str]
    queues: list[QueueAhead]
    ttft_target_ms: int
    max_output_tokens: int
    max_context_tokens: int | None
    data: list[LimitUse]


class CachedTokens(msgspec.Struct, kw_only=True):
    cached_tokens: int | None = None


class Usage(msgspec.Struct, kw_only=True):
    prompt_tokens: _Count
    total_tokens: _Count
    completion_tokens: int | None = None
    prompt_tokens_details: CachedTokens | None = None


class AnswerMessage(msgspec.Struct, kw_only=True):
    role: str
    content: str | None = None
    reasoning: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class ChatChoice(msgspec.Struct, kw_only=True):
    index: _Count
    message: AnswerMessage
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None


class ChatCompletion(msgspec.Struct, kw_only=True):
    """The whole answer, where the request does not stream."""

    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage


class Delta(msgspec.Struct, kw_only=True):
    role: str | None = None
    content: str | None = None
    reasoning: str | None = None
    tool_calls: list[dict[str, Any]] | None = None


class ChunkChoice(msgspec.Struct, kw_only=True):
    index: _Count
    delta: Delta
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None


class ChatCompletionChunk(msgspec.Struct, kw_only=True):
    """One event of a stream; the last has the `usage` if `stream_options` ask for it."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | None = None


class TextChoice(msgspec.Struct, kw_only=True):
    index: _Count
    text: str
    finish_reason: str | None = None
    logprobs: dict[str, Any] | None = None


class Completion(msgspec.Struct, kw_only=True):
    """The whole answer, or one event of a stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[TextChoice]
    usage: Usage | None = None
