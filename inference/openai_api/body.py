"""Reads a request's body, and no more of it than is allowed."""

import asyncio
from typing import Any, Final

from inference.errors import BodyTooLarge, InvalidRequest

READ_SECONDS: Final = 60.0


class ClientGone(Exception):
    """The connection ended before the request was whole: there is nobody to answer."""


async def read_body(scope: Any, receive: Any, *, max_bytes: int) -> bytes:
    """Return the whole body. One that says it is too large is refused before any of it is read."""
    headers = dict(scope["headers"])
    if headers.get(b"content-encoding", b"identity") != b"identity":
        raise InvalidRequest("The body must not be compressed; leave content-encoding away.")
    announced = headers.get(b"content-length", b"")
    if announced.isdigit() and int(announced) > max_bytes:
        raise _too_large(max_bytes)
    try:
        async with asyncio.timeout(READ_SECONDS):
            return await _read(receive, max_bytes)
    except TimeoutError:
        raise InvalidRequest(
            f"The body did not arrive within {READ_SECONDS:.0f} s.", code="body_timeout"
        ) from None


async def _read(receive: Any, max_bytes: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > max_bytes:
            raise _too_large(max_bytes)
        if not message.get("more_body", False):
            return b"".join((*parts, part)) if parts else part
        parts.append(part)


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body may have at most {max_bytes} bytes.")
