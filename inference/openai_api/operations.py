"""The endpoints as the API's description tells them: what each takes and answers, and how it may be
refused. A test holds this to the routes in `app`."""

from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from inference.openai_api.answers import (
    ChatCompletion,
    ChatCompletionChunk,
    Completion,
    KeyLimits,
    Model,
    ModelList,
    StreamTicket,
)
from inference.openai_api.chat_request import REFUSED_BY_CHAT, ChatBody
from inference.openai_api.completion_request import REFUSED_BY_COMPLETIONS, CompletionBody

_KNOWN: Final = frozenset({400, 401, 403, 429, 500, 503})
_GENERATING: Final = _KNOWN | {404, 408, 413, 502}

Refused = dict[str, tuple[tuple[Any, ...], str]]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One endpoint. `streams` is what an event of its stream holds; `refused` are fields of the
    body that the API knows and does not support, as the parser has them."""

    id: str
    method: str
    path: str
    summary: str
    description: str
    answers: type[msgspec.Struct]
    takes: type[msgspec.Struct] | None = None
    streams: type[msgspec.Struct] | None = None
    refused: Refused = field(default_factory=dict)
    refusals: frozenset[int] = _KNOWN
    example: dict[str, Any] | None = None


# Stands for a model that the key may use.
EXAMPLE_MODEL: Final = "<model>"
_MESSAGES: Final = [{"role": "user", "content": "What is Penstock?"}]

OPERATIONS: Final = (
    Operation(
        id="chat_completions_create",
        method="POST",
        path="/v1/chat/completions",
        summary="Complete a chat",
        description="Takes an API key with the scope `inference`. With `stream` the answer comes "
        "as server-sent events, the last of which is `[DONE]`.",
        takes=ChatBody,
        answers=ChatCompletion,
        streams=ChatCompletionChunk,
        refused=REFUSED_BY_CHAT,
        refusals=_GENERATING,
        example={"model": EXAMPLE_MODEL, "messages": _MESSAGES, "max_tokens": 64},
    ),
    Operation(
        id="completions_create",
        method="POST",
        path="/v1/completions",
        summary="Complete a text",
        description="Takes an API key with the scope `inference`. With `stream` the answer comes "
        "as server-sent events, the last of which is `[DONE]`.",
        takes=CompletionBody,
        answers=Completion,
        streams=Completion,
        refused=REFUSED_BY_COMPLETIONS,
        refusals=_GENERATING,
        example={"model": EXAMPLE_MODEL, "prompt": "A penstock is", "max_tokens": 64},
    ),
    Operation(
        id="models_list",
        method="GET",
        path="/v1/models",
        summary="List the models of the key",
        description="Takes any API key.",
        answers=ModelList,
    ),
    Operation(
        id="models_retrieve",
        method="GET",
        path="/v1/models/{model}",
        summary="Show a model",
        description="Takes any API key. A model that the key may not use does not exist for it.",
        answers=Model,
        refusals=_KNOWN | {404},
    ),
    Operation(
        id="limits_retrieve",
        method="GET",
        path="/v1/limits",
        summary="Show the limits of the key",
        description="Takes any API key. All limits that hold for it, what is used of each, and "
        "what one more request would wait.",
        answers=KeyLimits,
    ),
    Operation(
        id="stream_tickets_create",
        method="POST",
        path="/v1/stream/tickets",
        summary="Make a ticket for a websocket",
        description="Takes an API key with the scope `inference`. Browsers cannot send the header "
        "`Authorization` with a websocket: a server of yours asks for a ticket and hands it on.",
        answers=StreamTicket,
    ),
)
