"""Streams of another tenant, and the longest time that one of them stood still."""

import asyncio
import json
import time
from dataclasses import dataclass, field

import httpx

_SECONDS_TO_FIRST = 60.0
_DONE = "data: [DONE]"


@dataclass(frozen=True, kw_only=True)
class Gap:
    """`at` is when it ended, of `time.perf_counter`; seconds both."""

    seconds: float
    at: float


@dataclass(kw_only=True)
class Victims:
    """Keeps `streams` streams open, one after another each, until it is cancelled."""

    url: str
    api_key: str
    model: str
    streams: int = 3
    tokens: int = 400
    gaps: list[Gap] = field(default_factory=list)
    first_tokens: list[float] = field(default_factory=list)
    ended: int = 0
    heard_at: float = field(default_factory=time.perf_counter)
    broken: list[str] = field(default_factory=list)

    async def run(self) -> None:
        headers = {"Authorization": f"Bearer {self.api_key}"}
        async with httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=_SECONDS_TO_FIRST
        ) as client:
            await asyncio.gather(*(self._stream_forever(client) for _ in range(self.streams)))

    @property
    def longest(self) -> list[Gap]:
        """Return the longest gaps, the longest first."""
        return sorted(self.gaps, key=lambda gap: -gap.seconds)

    async def _stream_forever(self, client: httpx.AsyncClient) -> None:
        while True:
            try:
                await self._stream(client)
                self.ended += 1
            except (httpx.HTTPError, ValueError) as error:
                self.broken.append(repr(error)[:300])
                await asyncio.sleep(0.2)

    async def _stream(self, client: httpx.AsyncClient) -> None:
        """Raises `ValueError` for a stream that is not whole."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": "What is a penstock?"}],
            "stream": True,
            "max_tokens": self.tokens,
            "ignore_eos": True,
        }
        asked_at = time.perf_counter()
        line, last_at = "", 0.0
        try:
            async with client.stream("POST", "/v1/chat/completions", json=body) as response:
                if response.status_code != 200:
                    raise ValueError((await response.aread()).decode()[:300])
                async for each in response.aiter_lines():
                    if not each.startswith("data: "):
                        continue
                    line = each
                    if line != _DONE and "error" in json.loads(line[len("data: ") :]):
                        raise ValueError(line[:300])
                    last_at = self._heard(asked_at, last_at)
        finally:
            if line != _DONE and last_at:
                self._heard(asked_at, last_at)  # what it waited for in vain is a gap too
        if line != _DONE:
            raise ValueError("the stream ended without [DONE]")

    def _heard(self, asked_at: float, last_at: float) -> float:
        self.heard_at = now = time.perf_counter()
        if last_at:
            self.gaps.append(Gap(seconds=now - last_at, at=now))
        else:
            self.first_tokens.append(now - asked_at)
        return now
