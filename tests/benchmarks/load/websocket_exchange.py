"""Requests over Penstock's websocket, one at a time on each connection (RFC 6455)."""

import json
import struct
from urllib.parse import urlsplit

from tests.benchmarks.load.exchange import Exchange, usage_of
from tests.benchmarks.load.rounds import Door, LoadError

_KEY = "AAAAAAAAAAAAAAAAAAAAAA=="  # 16 bytes that mean nothing
_TEXT, _CLOSE, _PING, _PONG = 0x1, 0x8, 0x9, 0xA
_LAST = (b'{"type":"done"', b'{"type":"error"')


class WebsocketExchange(Exchange):
    """`received` holds what has come since the request, frames as they are."""

    _read = 0
    _last: bytes | None = None
    _is_open = False

    async def greet(self) -> None:
        """Shake hands. Raises `LoadError` where the server does not switch protocols."""
        self._is_open = False
        await self.send(
            f"GET /ws/v1/stream HTTP/1.1\r\nHost: {urlsplit(self.target.url).netloc}\r\n"
            f"Authorization: Bearer {self.target.api_key}\r\nConnection: Upgrade\r\n"
            f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {_KEY}"
            "\r\n\r\n".encode()
        )
        if not self.received.startswith(b"HTTP/1.1 101"):
            raise LoadError(f"{self.target.name} refused: {self.received[:600]!r}")
        self._is_open = True

    def request(self, door: Door, body: bytes) -> bytes:
        self._read, self._last = 0, None
        frame = {"type": "request", "id": "a", "api": "chat.completions"}
        return _frame(_TEXT, json.dumps(frame).encode()[:-1] + b', "body": ' + body + b"}")

    def is_complete(self) -> bool:
        if not self._is_open:
            return b"\r\n\r\n" in self.received
        while (frame := _next_frame(self.received, self._read)) is not None:
            operation, payload, self._read = frame
            if operation == _PING:
                self.reply(_frame(_PONG, payload))
            elif operation == _CLOSE or payload.startswith(_LAST):
                self._last = payload
        return self._last is not None

    def completion_tokens(self) -> int:
        if self._last is None or not self._last.startswith(_LAST[0]):
            raise LoadError(f"{self.target.name} refused: {self._last!r}")
        return usage_of(self.target.name, self._last)


def _frame(operation: int, payload: bytes) -> bytes:
    """Return a client's frame. Its mask is zero: what it guards against are proxies."""
    size = len(payload)
    if size < 126:
        head = struct.pack(">BB", 0x80 | operation, 0x80 | size)
    elif size < 1 << 16:
        head = struct.pack(">BBH", 0x80 | operation, 0x80 | 126, size)
    else:
        head = struct.pack(">BBQ", 0x80 | operation, 0x80 | 127, size)
    return head + bytes(4) + payload


def _next_frame(received: bytearray, begin: int) -> tuple[int, bytes, int] | None:
    """Return operation, payload and end of the server's frame at `begin`; None if it is not all
    there."""
    if len(received) < begin + 2:
        return None
    operation, size, at = received[begin] & 0x0F, received[begin + 1], begin + 2
    if size >= 126:
        width = 2 if size == 126 else 8
        size, at = int.from_bytes(received[at : at + width]), at + width
    if len(received) < at + size:
        return None
    return operation, bytes(received[at : at + size]), at + size
