"""Chat and completions over HTTP/1.1, streamed as server-sent events or answered whole."""

import re
from urllib.parse import urlsplit

from tests.benchmarks.load.exchange import Exchange, usage_of
from tests.benchmarks.load.rounds import Door, LoadError

CHUNK_HEAD = re.compile(rb"\r?\n?[0-9a-fA-F]+\r\n")
_LAST_CHUNK = b"0\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_PATHS = {Door.CHAT: "/v1/chat/completions", Door.COMPLETIONS: "/v1/completions"}


class HttpExchange(Exchange):
    def request(self, door: Door, body: bytes) -> bytes:
        key = self.target.api_key
        authorization = f"Authorization: Bearer {key}\r\n" if key else ""
        head = (
            f"POST {_PATHS[door]} HTTP/1.1\r\nHost: {urlsplit(self.target.url).netloc}\r\n"
            f"{authorization}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def is_complete(self) -> bool:
        if self.received.endswith(_LAST_CHUNK):
            return True
        if self.received.startswith(b"HTTP/1.1 200") and self.received.endswith(b"\n\n\r\n"):
            return False  # an event of a stream; what follows need not be looked for each time
        head, separator, body = self.received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head) if separator else None
        return length is not None and len(body) >= int(length[1])

    def completion_tokens(self) -> int:
        head, _, body = bytes(self.received).partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200"):
            raise LoadError(f"{self.target.name} refused: {self.received[:600]!r}")
        text = CHUNK_HEAD.sub(b"", body)
        if text.startswith(b"{"):
            return usage_of(self.target.name, text.partition(b"\r\n")[0])
        for line in reversed(text.split(b"\n")):
            if line.startswith(b"data: {") and b'"usage":{' in line:
                return usage_of(self.target.name, line[len(b"data: ") :])
        raise LoadError(f"{self.target.name} sent no usage: {self.received[-600:]!r}")
