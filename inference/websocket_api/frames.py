"""What crosses the websocket. Every frame is one JSON object in a text message.

From the client, at most 1 MiB each:

    {"type": "request", "id": "a", "api": "chat.completions", "body": {...}}
    {"type": "cancel", "id": "a"}

`id` is the client's own name for the request, free again after its end. `api` is
`chat.completions` or `completions`, `body` what the HTTP endpoint of that name takes.

From the server:

    {"type": "notice", "id": "a", "queue": "relaxed", "expected_wait_ms": 4200}
    {"type": "notice", "id": "a", "queue": "starting"}
    {"type": "notice", "id": "a", "queue": "waiting"}
    {"type": "notice", "id": "a", "model_instead_of": "large"}
    {"type": "notice", "id": "a", "adapter": "acme/support@2"}
    {"type": "chunk", "id": "a", "data": {...}}
    {"type": "done", "id": "a", "request_id": "...", "finish_reason": "stop", "usage": {...}}
    {"type": "error", "id": "a", "error": {"message", "type", "param", "code"}}

An error of a limit has `penstock` besides: {"limit", "scope", "used", "limit_value",
"reset_seconds"}, where null says that waiting does not help.

A `notice` comes before all else, and only to say that the request waits for longer than its tier
promises, for a worker that is not ready yet, or in the queue after a second; that a smaller model
answers than the body named (the project's choice), or which version of an adapter answers.

`data` is a chunk of the stream, or the whole answer where the body does not ask to stream. Each
request ends with one `done` or one `error`; one that was cancelled with a `done` whose
`finish_reason` is `cancelled` and whose usage counts what was generated. A frame that is not taken
gets its `error` under its own id. That id is null where none can be read, or a request of it is
open: such an error ends no request.
"""

import json
import math
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from gpu_workers.protocol.messages import Terminal, WireError
from inference.errors import InvalidRequest
from inference.lifecycle.saturation import Notice
from inference.openai_api import parsing
from inference.openai_api.responses import error_json

MAX_FRAME_BYTES: Final = 1024 * 1024

# A frame that is not understood is read again for its id and its fault, slowly: only up to here.
_READ_AGAIN_BYTES: Final = 64 * 1024
_LONGEST_ID: Final = 128
_Id = Annotated[str, Meta(min_length=1, max_length=_LONGEST_ID)]


class RequestFrame(msgspec.Struct, tag_field="type", tag="request", forbid_unknown_fields=True):
    """Asks for an answer. `id` is yours, and free again after its end; `body` is what the HTTP
    endpoint of that name takes."""

    id: _Id
    api: Literal["chat.completions", "completions"]
    body: msgspec.Raw


class CancelFrame(msgspec.Struct, tag_field="type", tag="cancel", forbid_unknown_fields=True):
    """Ends a request early; its `done` says what was generated."""

    id: _Id


class NoticeFrame(msgspec.Struct, kw_only=True, tag_field="type", tag="notice", omit_defaults=True):
    """Comes before all else, and only to say that the request waits for longer than its tier
    promises, for a worker that is not ready yet, or in the queue after a second; that a smaller
    model answers than the body named, or which version of an adapter does."""

    id: str
    queue: Literal["relaxed", "starting", "waiting"] | None = None
    expected_wait_ms: int | None = None
    model_instead_of: str | None = None
    adapter: str | None = None


class ChunkFrame(msgspec.Struct, kw_only=True, tag_field="type", tag="chunk"):
    """A chunk of the stream, or the whole answer where the body does not ask to stream."""

    id: str
    data: dict[str, Any]


class CachedTokens(msgspec.Struct, kw_only=True):
    cached_tokens: int


class FrameUsage(msgspec.Struct, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: CachedTokens


class DoneFrame(msgspec.Struct, kw_only=True, tag_field="type", tag="done"):
    """Ends a request. `finish_reason` is `cancelled` of one that was cancelled."""

    id: str
    request_id: str
    finish_reason: str | None
    usage: FrameUsage


class FrameError(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`penstock` names the limit, where one refused."""

    message: str
    type: str
    param: str | None
    code: str | None
    penstock: dict[str, Any] | None = None


class ErrorFrame(msgspec.Struct, kw_only=True, tag_field="type", tag="error"):
    """Ends a request, or says why a frame was not taken; with the id null it ends none."""

    id: str | None
    error: FrameError


_decoder: "msgspec.json.Decoder[RequestFrame | CancelFrame]" = msgspec.json.Decoder(
    RequestFrame | CancelFrame
)
_EXPECTED: Final = (
    'expected {"type": "request", "id", "api", "body"} or {"type": "cancel", "id"} as one JSON text'
)


def decode_frame(text: str | None) -> RequestFrame | CancelFrame:
    """Return the client's frame. Raises `InvalidRequest`, which names what was expected."""
    if text is None:
        raise InvalidRequest(f"Binary frames are not taken: {_EXPECTED}.", code="invalid_frame")
    data = text.encode("utf-8", "surrogatepass")
    if len(data) > MAX_FRAME_BYTES:
        raise InvalidRequest(
            f"A frame may have at most {MAX_FRAME_BYTES} bytes, got {len(data)}.",
            code="frame_too_large",
        )
    try:
        frame = parsing.decode(data, _decoder)
    except InvalidRequest as error:
        raise _not_understood(error.message, error.param or _place_of_no_number(text)) from None
    if key := _key_given_twice(data, frame):
        raise _not_understood(f"The key {key!r} is there twice.", key)
    return frame


def id_of(text: str | None) -> str | None:
    """Return the id of a frame that was not understood; None where none can be read."""
    value = _lenient(text)
    name = value.get("id") if isinstance(value, dict) else None
    return name if isinstance(name, str) and 0 < len(name) <= _LONGEST_ID else None


def _not_understood(reason: str, param: str | None) -> InvalidRequest:
    return InvalidRequest(
        f"This frame is not understood: {_EXPECTED}. {reason}", param=param, code="invalid_frame"
    )


def _key_given_twice(data: bytes, frame: RequestFrame | CancelFrame) -> str | None:
    """Return a key of the frame itself that is there twice: which of its values counts would be a
    guess. The body, which may be long, is not read again."""
    if isinstance(frame, RequestFrame):
        data = data.replace(bytes(frame.body), b"null", 1)
    if len(data) > _READ_AGAIN_BYTES:
        return None
    repeated: list[str] = []

    def pairs(found: list[tuple[str, Any]]) -> None:
        names = [name for name, _ in found]
        repeated.extend(name for name in names if names.count(name) > 1)

    json.loads(data, object_pairs_hook=pairs)
    return repeated[0] if repeated else None


def _place_of_no_number(text: str) -> str | None:
    """Return where NaN or an infinity stands, which other writers of JSON write."""
    places: list[tuple[str, Any]] = [("", _lenient(text))]
    while places:
        place, value = places.pop()
        if isinstance(value, float) and not math.isfinite(value):
            return place
        if isinstance(value, dict):
            places += [(f"{place}.{name}" if place else name, each) for name, each in value.items()]
        elif isinstance(value, list):
            places += [(f"{place}[{number}]", each) for number, each in enumerate(value)]
    return None


def _lenient(text: str | None) -> Any:
    if text is None or len(text) > _READ_AGAIN_BYTES:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


class FrameWriter:
    """Writes the frames of one request; chunks are spliced in as they came, never parsed."""

    def __init__(self, name: str | None) -> None:
        self._name = name or ""  # errors alone have none
        self._id = msgspec.json.encode(name)

    def notice(self, notice: Notice, adapter: str | None) -> str:
        queue: Literal["relaxed", "starting"] | None = None
        if notice.relaxed_wait_ms is not None:
            queue = "relaxed"
        elif notice.waits_for_worker:
            queue = "starting"
        frame = NoticeFrame(
            id=self._name,
            queue=queue,
            expected_wait_ms=notice.relaxed_wait_ms,
            model_instead_of=notice.instead_of,
            adapter=adapter,
        )
        return msgspec.json.encode(frame).decode()

    def waiting(self) -> str:
        return msgspec.json.encode(NoticeFrame(id=self._name, queue="waiting")).decode()

    def chunk(self, data: bytes) -> str:
        return (b'{"type":"chunk","id":' + self._id + b',"data":' + data + b"}").decode()

    def done(self, terminal: Terminal, finish_reason: str | None) -> str:
        usage = terminal.usage
        frame = DoneFrame(
            id=self._name,
            request_id=terminal.request_id,
            finish_reason=finish_reason,
            usage=FrameUsage(
                prompt_tokens=usage.prompt_tokens,
                completion_tokens=usage.completion_tokens,
                total_tokens=usage.prompt_tokens + usage.completion_tokens,
                prompt_tokens_details=CachedTokens(cached_tokens=usage.cached_tokens),
            ),
        )
        return msgspec.json.encode(frame).decode()

    def error(self, error: WireError) -> str:
        envelope = error_json(error)
        return (b'{"type":"error","id":' + self._id + b"," + envelope[1:]).decode()
