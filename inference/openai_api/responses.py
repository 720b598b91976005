"""What goes back over HTTP: JSON, errors in OpenAI's envelope, and server-sent events."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from gpu_workers.protocol.messages import WireError
from inference.admission.limits import Headers as TextHeaders
from inference.errors import InferenceError

Send = Any
Headers = list[tuple[bytes, bytes]]

PING: Final = b": ping\n\n"
# A request that is still queued after so long gives its client the first sign of life.
QUEUED_SIGN_SECONDS: Final = 0.8
DONE: Final = b"data: [DONE]\n\n"
# No browser is to take an answer for anything but what it says it is.
_NOSNIFF: Final = (b"x-content-type-options", b"nosniff")
_STREAM_HEADERS: Final[Headers] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    _NOSNIFF,
    (b"cache-control", b"no-cache, no-transform"),
    (b"x-accel-buffering", b"no"),
]


def error_json(error: WireError) -> bytes:
    """Render OpenAI's error envelope; where a limit refuses, `penstock` names it for programs."""
    body: dict[str, Any] = {
        "message": error.message,
        "type": error.type,
        "param": error.param,
        "code": error.code,
    }
    if error.limit is not None:
        body["penstock"] = msgspec.structs.asdict(error.limit)
    return msgspec.json.encode({"error": body})


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


def events(chunks: Iterable[bytes]) -> bytes:
    """Return chunks, which are JSON without line breaks, as server-sent events in one piece of
    bytes."""
    return b"data: " + b"\n\ndata: ".join(chunks) + b"\n\n"


async def send_json(
    send: Send, request_id: str, body: bytes, *, status: int = 200, headers: Headers | None = None
) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", b"application/json"),
                _NOSNIFF,
                (b"content-length", str(len(body)).encode()),
                (b"x-request-id", request_id.encode()),
                *(headers or []),
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})


async def send_error(
    send: Send,
    request_id: str,
    error: InferenceError | WireError,
    *,
    allow: str | None = None,
    more_headers: TextHeaders = (),
) -> None:
    wire = error.to_wire() if isinstance(error, InferenceError) else error
    headers = retry_headers(wire)
    if wire.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if allow is not None:
        headers.append((b"allow", allow.encode()))
    headers += encoded(more_headers)
    await send_json(send, request_id, error_json(wire), status=wire.status, headers=headers)


def retry_headers(error: WireError) -> Headers:
    """Return both forms that OpenAI's clients read, and whether to retry at all."""
    headers: Headers = []
    if error.retry_after_seconds is not None:
        seconds = error.retry_after_seconds
        headers.append((b"retry-after", str(seconds).encode()))
        headers.append((b"retry-after-ms", str(error.retry_after_ms or seconds * 1000).encode()))
    if error.should_retry is not None:
        headers.append((b"x-should-retry", b"true" if error.should_retry else b"false"))
    return headers


def encoded(headers: TextHeaders) -> Headers:
    return [(name.encode(), value.encode()) for name, value in headers]


async def start_stream(send: Send, request_id: str, headers: TextHeaders = ()) -> None:
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [
                *_STREAM_HEADERS,
                (b"x-request-id", request_id.encode()),
                *encoded(headers),
            ],
        }
    )


def part(body: bytes, *, is_last: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": not is_last}


async def send_part(send: Send, body: bytes, *, is_last: bool = False) -> None:
    await send(part(body, is_last=is_last))
