"""A lean streaming client: raw HTTP/1.1 over loopback, so that the client's own cost stays small.

The same client drives every server of a comparison, so its cost falls on all of them alike.
"""

import asyncio
import json
import re
import time
from dataclasses import dataclass
from statistics import median, quantiles
from urllib.parse import urlsplit

_FIRST_CONTENT = re.compile(rb'"(?:content|text)":"[^"]')
_CHUNK_HEAD = re.compile(rb"\r?\n?[0-9a-fA-F]+\r\n")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class LoadError(RuntimeError):
    """A server answered something that is no complete stream."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """One server under load. `api_key` None where the server asks for none."""

    name: str
    url: str
    model: str
    api_key: str | None = None

    def __post_init__(self) -> None:
        if urlsplit(self.url).hostname not in _LOOPBACK:
            raise ValueError(f"benchmarks talk to loopback only, not to {self.url}")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One finished stream. Times in seconds, counts in tokens."""

    ttft: float
    duration: float
    completion_tokens: int


@dataclass(frozen=True, kw_only=True)
class RoundResult:
    """One round of `streams` concurrent streams, closed loop. `wall` in seconds."""

    samples: list[Sample]
    wall: float

    @property
    def tokens_per_second(self) -> float:
        return sum(sample.completion_tokens for sample in self.samples) / self.wall

    @property
    def ttft_p50_ms(self) -> float:
        return median(sample.ttft for sample in self.samples) * 1000

    @property
    def ttft_p99_ms(self) -> float:
        values = [sample.ttft for sample in self.samples]
        return quantiles(values, n=100, method="inclusive")[98] * 1000

    @property
    def itl_p50_ms(self) -> float:
        """Median over streams of the mean time between tokens after the first."""
        return 1000 * median(
            (sample.duration - sample.ttft) / max(1, sample.completion_tokens - 1)
            for sample in self.samples
        )


async def run_round(
    target: Target, *, streams: int, requests: int, max_tokens: int, prompts: list[str]
) -> RoundResult:
    """Send `requests` streaming chat requests over `streams` connections, in closed loop."""
    waiting = list(range(requests))
    samples: list[Sample] = []

    async def client() -> None:
        connection = _Connection(target)
        try:
            while waiting:
                prompt = prompts[waiting.pop() % len(prompts)]
                samples.append(await connection.stream(prompt, max_tokens))
        finally:
            connection.close()

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(streams):
            group.create_task(client())
    return RoundResult(samples=samples, wall=time.perf_counter() - started)


async def one_stream(target: Target, prompt: str, max_tokens: int) -> Sample:
    """A single stream on a connection of its own."""
    connection = _Connection(target)
    try:
        return await connection.stream(prompt, max_tokens)
    finally:
        connection.close()


class _Connection:
    """One keep-alive connection that streams one request after another."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def stream(self, prompt: str, max_tokens: int) -> Sample:
        """Send one request and read its whole answer. As HTTP clients do, ask again on a fresh
        connection if the server has closed the idle one."""
        started = time.perf_counter()
        received, ttft = await self._exchange(prompt, max_tokens, started)
        if not received:
            self.close()
            received, ttft = await self._exchange(prompt, max_tokens, started)
        duration = time.perf_counter() - started
        return Sample(
            ttft=ttft if ttft is not None else duration,
            duration=duration,
            completion_tokens=_completion_tokens(self._target.name, received),
        )

    async def _exchange(
        self, prompt: str, max_tokens: int, started: float
    ) -> tuple[bytes, float | None]:
        """The answer's bytes, none if the connection was closed, and when the first token came."""
        if self._reader is None or self._writer is None:
            parts = urlsplit(self._target.url)
            self._reader, self._writer = await asyncio.open_connection(parts.hostname, parts.port)
        self._writer.write(self._request(prompt, max_tokens))
        received = bytearray()
        ttft: float | None = None
        while data := await asyncio.wait_for(self._reader.read(65536), timeout=120):
            received += data
            if ttft is None and _FIRST_CONTENT.search(received):
                ttft = time.perf_counter() - started
            if received.endswith(b"0\r\n\r\n") or not received.startswith(b"HTTP/1.1 200"):
                break
        return bytes(received), ttft

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    def _request(self, prompt: str, max_tokens: int) -> bytes:
        body = json.dumps(
            {
                "model": self._target.model,
                "messages": [{"role": "user", "content": prompt}],
                "stream": True,
                "stream_options": {"include_usage": True},
                "temperature": 0,
                "max_tokens": max_tokens,
                "ignore_eos": True,
            }
        ).encode()
        key = self._target.api_key
        authorization = f"Authorization: Bearer {key}\r\n" if key else ""
        head = (
            f"POST /v1/chat/completions HTTP/1.1\r\nHost: {urlsplit(self._target.url).netloc}\r\n"
            f"{authorization}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def _completion_tokens(server: str, received: bytes) -> int:
    """The engine's own count, from the stream's last usage event."""
    head, _, body = received.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise LoadError(f"{server} refused: {received[:600]!r}")
    text = _CHUNK_HEAD.sub(b"", body)
    for line in reversed(text.split(b"\n")):
        if line.startswith(b"data: {") and b'"usage":{' in line:
            return int(json.loads(line[6:])["usage"]["completion_tokens"])
    raise LoadError(f"{server} sent no usage: {received[-600:]!r}")
