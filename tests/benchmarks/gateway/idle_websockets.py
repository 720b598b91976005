"""Websockets that are opened and ask for nothing, held by a process of their own.

It reads one line of JSON, opens the connections and says so; to each further line it answers how
many are still open. It ends with its standard input.
"""

import asyncio
import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from tests.benchmarks.load.rounds import LoadError
from tests.support.places import ROOT
from tests.support.stack_addresses import LiveStack

# Handshakes under way at once.
AT_ONCE = 64
OPENING_SECONDS = 120
_KEY = "AAAAAAAAAAAAAAAAAAAAAA=="  # 16 bytes that mean nothing
_PING, _PONG = 0x89, b"\x8a"


class IdleWebsockets:
    """Our end of that process."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def count_open(self) -> int:
        return self.ask("count")

    def ask(self, line: str) -> int:
        """Return the number that the process answers. Raises `LoadError` if it has ended."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise LoadError(f"the process that holds websockets ended: {self._process.wait()}")
        return int(answer)


@contextmanager
def idle_websockets(stack: LiveStack, count: int) -> Iterator[IdleWebsockets]:
    """Hold `count` connections open until the block ends. Raises `LoadError`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.benchmarks.gateway.idle_websockets"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        process_group=0,
    )
    try:
        held = IdleWebsockets(process)
        held.ask(json.dumps({"url": stack.url, "key": stack.acme_key, "count": count}))
        yield held
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.wait(timeout=30)


class _Websocket(asyncio.Protocol):
    """One connection: it shakes hands and answers pings."""

    def __init__(self, request: bytes, open_ones: "set[_Websocket]") -> None:
        self.is_answered = asyncio.Event()
        self._request = request
        self._open_ones = open_ones
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if not self.is_answered.is_set():
            if data.startswith(b"HTTP/1.1 101"):
                self._open_ones.add(self)
            self.is_answered.set()
        elif data[0] == _PING:
            payload = data[2 : 2 + data[1]]
            self._transport.write(_PONG + bytes([0x80 | len(payload)]) + bytes(4) + payload)

    def connection_lost(self, error: Exception | None) -> None:
        self._open_ones.discard(self)
        self.is_answered.set()


async def _hold(url: str, key: str, count: int) -> None:
    parts = urlsplit(url)
    assert parts.hostname is not None and parts.port is not None
    host, port = parts.hostname, parts.port
    loop, open_ones = asyncio.get_running_loop(), set[_Websocket]()
    request = (
        f"GET /ws/v1/stream HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {key}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        f"Sec-WebSocket-Key: {_KEY}\r\n\r\n"
    ).encode()
    gate = asyncio.Semaphore(AT_ONCE)

    async def open_one() -> None:
        async with gate:
            _, websocket = await loop.create_connection(
                lambda: _Websocket(request, open_ones), host, port
            )
            await websocket.is_answered.wait()

    async with asyncio.timeout(OPENING_SECONDS):
        await asyncio.gather(*(open_one() for _ in range(count)))
    print(len(open_ones), flush=True)
    while await asyncio.to_thread(sys.stdin.readline):
        print(len(open_ones), flush=True)


def _main() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_hold(**json.loads(sys.stdin.readline())))


if __name__ == "__main__":
    _main()
