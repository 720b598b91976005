"""What HTTP and websocket connections have in common: a request at a time, timed as it comes."""

import asyncio
import json
import re
import time
from abc import abstractmethod
from typing import Any
from urllib.parse import urlsplit

from tests.benchmarks.load.rounds import Door, LoadError, Sample, Target

FIRST_CONTENT = re.compile(rb'"(?:content|text)":"[^"]')
ANSWER_SECONDS = 120


class Exchange(asyncio.Protocol):
    """One connection that is kept alive. `gaps_ms` collects the time between arrivals."""

    def __init__(self, target: Target, gaps_ms: list[float]) -> None:
        self.target = target
        self.received = bytearray()
        self._gaps_ms = gaps_ms
        self._transport: asyncio.Transport | None = None
        self._answered: asyncio.Future[None] | None = None
        self._first_at: float | None = None
        self._last_at = 0.0

    @abstractmethod
    def request(self, door: Door, body: bytes) -> bytes:
        """Return a request as it goes over the connection."""

    @abstractmethod
    def is_complete(self) -> bool:
        """Tell whether `received` holds the whole answer."""

    @abstractmethod
    def completion_tokens(self) -> int:
        """Return the engine's own count. Raises `LoadError` where the answer has none."""

    async def greet(self) -> None:
        """Do what comes before the first request."""

    async def ask(self, door: Door, body: bytes) -> Sample:
        """Send one request and read its whole answer. As HTTP clients do, ask again on a fresh
        connection if the server has closed the idle one. Raises `LoadError`."""
        began = time.perf_counter()
        await self._exchange(door, body)
        if not self.received:
            self.close()
            await self._exchange(door, body)
        ended = time.perf_counter()
        first = ended if self._first_at is None else self._first_at
        return Sample(
            ttft_ms=1000 * (first - began),
            duration_ms=1000 * (ended - began),
            completion_tokens=self.completion_tokens(),
        )

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._transport = None

    async def _exchange(self, door: Door, body: bytes) -> None:
        if self._transport is None:
            await self._connect()
        await self.send(self.request(door, body))

    async def send(self, data: bytes) -> None:
        """Send, and wait for the whole answer or the end of the connection."""
        assert self._transport is not None
        self.received.clear()
        self._first_at = None
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(data)
        async with asyncio.timeout(ANSWER_SECONDS):
            await self._answered

    async def _connect(self) -> None:
        parts = urlsplit(self.target.url)
        assert parts.hostname is not None and parts.port is not None
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(lambda: self, parts.hostname, parts.port)
        self._transport = transport
        await self.greet()

    def reply(self, data: bytes) -> None:
        """Send what is no request, such as a pong."""
        assert self._transport is not None
        self._transport.write(data)

    # asyncio's side ------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        self.received += data
        if self._first_at is not None:
            self._gaps_ms.append(1000 * (now - self._last_at))
            self._last_at = now
        elif FIRST_CONTENT.search(self.received):
            self._first_at = self._last_at = now
        if self.is_complete():
            self._end()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._end()

    def _end(self) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_result(None)


def usage_of(server: str, event: bytes) -> int:
    """Return the completion tokens of a JSON object with a usage. Raises `LoadError`."""
    try:
        parsed: dict[str, Any] = json.loads(event)
        return int(parsed["usage"]["completion_tokens"])
    except (ValueError, KeyError, TypeError):
        raise LoadError(f"{server} sent no usage: {event[-600:]!r}") from None
