"""Many short requests over connections that stay open, by both gateways, each noted as its client
saw it."""

import asyncio
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.support.places import LOOPBACK

TOKENS = 2
_HEADERS = {
    "request_id": re.compile(rb"\r\nx-request-id: ([0-9a-f]{32})", re.IGNORECASE),
    "adapter": re.compile(rb"\r\nx-penstock-adapter: ([^\r]+)", re.IGNORECASE),
}
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """What a client was told. `gateway` is its number; `begun_at` is by `time.monotonic`."""

    gateway: int
    user: str
    status: int
    request_id: str
    adapter: str
    begun_at: float


class Asker:
    """Asks for one adapter, over so many connections to each of the gateways."""

    def __init__(self, ports: list[int], key: str, model: str, *, connections: int) -> None:
        self.told: list[Told] = []
        self._ports, self._key, self._model = ports, key, model
        self._connections = connections

    async def ask(self, total: int, user_of: Callable[[int], str]) -> list[Told]:
        """Ask so often, as the users that the numbers of requests have ("" for none), and return
        what was told."""
        numbers = iter(range(total))
        begun = len(self.told)
        await self._ask_all(lambda: next(numbers, None), user_of)
        return self.told[begun:]

    async def ask_until(self, is_over: asyncio.Event, user_of: Callable[[int], str]) -> None:
        turn = iter(range(1 << 30))
        await self._ask_all(lambda: None if is_over.is_set() else next(turn), user_of)

    async def _ask_all(
        self, next_number: Callable[[], int | None], user_of: Callable[[int], str]
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            for gateway in range(len(self._ports)):
                for _ in range(self._connections):
                    tasks.create_task(self._ask_over_one(gateway, next_number, user_of))

    async def _ask_over_one(
        self, gateway: int, next_number: Callable[[], int | None], user_of: Callable[[int], str]
    ) -> None:
        reader, writer = await asyncio.open_connection(LOOPBACK, self._ports[gateway])
        try:
            while (number := next_number()) is not None:
                user, begun_at = user_of(number), time.monotonic()
                writer.write(self._request(number, user, self._ports[gateway]))
                async with asyncio.timeout(_ANSWER_SECONDS):
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = _LENGTH.search(head)
                    await reader.readexactly(int(length[1]) if length else 0)
                found = {name: pattern.search(head) for name, pattern in _HEADERS.items()}
                self.told.append(
                    Told(
                        gateway=gateway,
                        user=user,
                        status=int(head[9:12]),
                        begun_at=begun_at,
                        **{name: each[1].decode() if each else "" for name, each in found.items()},
                    )
                )
        finally:
            writer.close()

    def _request(self, number: int, user: str, port: int) -> bytes:
        asked = {
            "model": self._model,
            "messages": [{"role": "user", "content": f"Request {number % 64}."}],
            "max_tokens": TOKENS,
            "ignore_eos": True,
        }
        body = json.dumps(asked | ({"user": user} if user else {})).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: {LOOPBACK}:{port}\r\n"
        head += f"Authorization: Bearer {self._key}\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
