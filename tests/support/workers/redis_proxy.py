"""A way to Redis that a test can interrupt at a chosen call: before Redis has it, or before its
answer is heard."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

from gpu_workers.cancellation import cancel_and_wait
from tests.support.places import LOOPBACK

Command = list[bytes]
When = Literal["before", "after"]


@dataclass(kw_only=True)
class Interruption:
    """`at_it` is called once, at the first command that `is_it`; from then on nothing of its
    connection goes on until `release`."""

    is_it: Callable[[Command], bool]
    when: When
    at_it: Callable[[], None]
    has_come: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)

    def come(self) -> None:
        self.at_it()
        self.has_come.set()

    def release(self) -> None:
        self.released.set()


class RedisProxy:
    """`url` leads to the Redis behind it, with the same user."""

    def __init__(self, redis_url: str) -> None:
        self._redis = urlsplit(redis_url)
        self._interruptions: list[Interruption] = []
        self._pumps: set[asyncio.Task[None]] = set()
        self.url = ""

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._connect, LOOPBACK, 0)
        port = self._server.sockets[0].getsockname()[1]
        user = self._redis.netloc.rpartition("@")[0]
        self.url = f"redis://{user}@{LOOPBACK}:{port}{self._redis.path}"

    async def stop(self) -> None:
        self._server.close()
        await cancel_and_wait(self._pumps)

    def interrupt(self, *interruptions: Interruption) -> None:
        """Each once, in place of earlier ones."""
        self._interruptions = list(interruptions)

    async def _connect(
        self, client_reader: asyncio.StreamReader, client_writer: asyncio.StreamWriter
    ) -> None:
        host, port = self._redis.hostname, self._redis.port
        reader, writer = await asyncio.open_connection(host, port)
        connection = _Connection(self._due, client_writer, writer)
        pumps = [
            asyncio.create_task(connection.pump_commands(client_reader)),
            asyncio.create_task(connection.pump_answers(reader)),
        ]
        self._pumps.update(pumps)
        with suppress(asyncio.CancelledError):
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        await cancel_and_wait(pumps)
        self._pumps.difference_update(pumps)
        for each in (writer, client_writer):
            each.close()

    def _due(self, command: Command) -> Interruption | None:
        """The interruption, if this is its command, for once."""
        for interruption in self._interruptions:
            if interruption.is_it(command):
                self._interruptions.remove(interruption)
                return interruption
        return None


class _Connection:
    def __init__(
        self,
        due: Callable[[Command], Interruption | None],
        client: asyncio.StreamWriter,
        redis: asyncio.StreamWriter,
    ) -> None:
        self._due = due
        self._client = client
        self._redis = redis
        self._unanswered: Interruption | None = None

    async def pump_commands(self, reader: asyncio.StreamReader) -> None:
        buffer = b""
        with suppress(OSError):
            while data := await reader.read(1 << 20):
                buffer += data
                end = 0
                for at, command in complete_commands(buffer):
                    end = at
                    interruption = self._due(command)
                    if interruption is not None and interruption.when == "before":
                        interruption.come()
                        await interruption.released.wait()
                    elif interruption is not None:
                        self._unanswered = interruption
                self._redis.write(buffer[:end])
                buffer = buffer[end:]

    async def pump_answers(self, reader: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await reader.read(1 << 20):
                if (interruption := self._unanswered) is not None:
                    self._unanswered = None
                    interruption.come()
                    await interruption.released.wait()
                self._client.write(data)


def complete_commands(buffer: bytes) -> Iterator[tuple[int, Command]]:
    """Each whole command in a part of what a client sends, as arrays of bulk strings, with where it
    ends."""
    at = 0
    while (line_end := buffer.find(b"\r\n", at)) >= 0:
        command: Command = []
        count, at_word = int(buffer[at + 1 : line_end]), line_end + 2
        while len(command) < count:
            line_end = buffer.find(b"\r\n", at_word)
            if line_end < 0:
                return
            begin = line_end + 2
            end = begin + int(buffer[at_word + 1 : line_end])
            if end + 2 > len(buffer):
                return
            command.append(buffer[begin:end])
            at_word = end + 2
        at = at_word
        yield at, command


@asynccontextmanager
async def a_redis_proxy(redis_url: str) -> AsyncIterator[RedisProxy]:
    proxy = RedisProxy(redis_url)
    await proxy.start()
    try:
        yield proxy
    finally:
        await proxy.stop()
