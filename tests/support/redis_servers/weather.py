"""Bad weather between a client and its Redis: a proxy that refuses, drops or executes without an
answer the calls that a test names.

A call is named by what it is for: a function by its own name (`finish`), a command by itself and
the family of its key (`RPUSH frames`).
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit, urlunsplit

from tests.support.places import LOOPBACK

# Answers of a real server, each to a call that it has not run.
ERRORS = (
    "OOM command not allowed when used memory > 'maxmemory'.",
    "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN NOSAVE.",
    "LOADING Redis is loading the dataset in memory",
    "READONLY You can't write against a read only replica.",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
    "NOREPLICAS Not enough good replicas to write.",
    "MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist.",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "CLUSTERDOWN Hash slot not served",
)
# The connection ends before the call has reached Redis, or after it was run.
DROPPED = "dropped"
ANSWER_LOST = "answer lost"
WEATHER = (*ERRORS, DROPPED, ANSWER_LOST)
# What `make test` tries; all others are for `make test-all`.
USUAL = ("OOM", ANSWER_LOST)

_FUNCTION = re.compile(r"penstock_(\w+)_\d+$")
_OF_THE_CONNECTION = {"HELLO", "AUTH", "CLIENT", "SELECT", "PING"}


class RedisWeather:
    """`calls` are all that came; `strikes` those that were struck, by name."""

    def __init__(self, redis_url: str) -> None:
        self._target = urlsplit(redis_url)
        self._storms: dict[str, tuple[str, int]] = {}
        self._server: asyncio.Server | None = None
        self._links: set[asyncio.Task[None]] = set()
        self.calls: Counter[str] = Counter()
        self.strikes: Counter[str] = Counter()

    @property
    def url(self) -> str:
        """The same user and database, by way of the proxy."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        login, _, _ = self._target.netloc.rpartition("@")
        return urlunsplit(self._target._replace(netloc=f"{login}@{LOOPBACK}:{port}"))

    def strike(self, call: str, how: str, *, times: int = 2) -> None:
        """Meet the next calls of this name with an error of Redis, DROPPED or ANSWER_LOST."""
        self._storms[call] = (how, times)

    def is_over(self, call: str) -> bool:
        return call not in self._storms

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, LOOPBACK, 0)

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for link in list(self._links):
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        host, port = self._target.hostname, self._target.port
        server_reader, server_writer = await asyncio.open_connection(host, port)
        try:
            with suppress(OSError, EOFError, asyncio.CancelledError):
                await self._relay(reader, writer, server_reader, server_writer)
        finally:
            self._links.discard(task)
            writer.close()
            server_writer.close()

    async def _relay(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server_reader: asyncio.StreamReader,
        server_writer: asyncio.StreamWriter,
    ) -> None:
        """One call after the other, so that answers stay in their order."""
        while raw := await _read_value(reader):
            how = self._weather_of(raw)
            if how == DROPPED:
                return
            if how in ERRORS:
                writer.write(f"-{how}\r\n".encode())
                continue
            server_writer.write(raw)
            answer = await _read_value(server_reader)
            if how == ANSWER_LOST or not answer:
                return
            writer.write(answer)
            await writer.drain()

    def _weather_of(self, raw: bytes) -> str:
        name = name_of(_words_of(raw))
        if name in _OF_THE_CONNECTION:
            return ""
        self.calls[name] += 1
        how, left = self._storms.get(name, ("", 0))
        if how:
            self.strikes[name] += 1
            if left > 1:
                self._storms[name] = (how, left - 1)
            else:
                del self._storms[name]
        return how


def is_usual(how: str) -> bool:
    return how.startswith(USUAL)


@asynccontextmanager
async def redis_weather(redis_url: str) -> AsyncIterator[RedisWeather]:
    weather = RedisWeather(redis_url)
    await weather.start()
    try:
        yield weather
    finally:
        await weather.stop()


def name_of(words: list[bytes]) -> str:
    """Return what a call is for, by its words."""
    command = words[0].decode().upper()
    if command == "FCALL":
        found = _FUNCTION.match(words[1].decode())
        return found[1] if found else words[1].decode()
    if command in _OF_THE_CONNECTION:
        return command
    key = words[{"BLMPOP": 3}.get(command, 1)].decode() if len(words) > 1 else ""
    _, _, family = key.rpartition("}:") if "}:" in key else ("", "", key)
    return f"{command} {family.partition(':')[0]}".strip()


async def _read_value(reader: asyncio.StreamReader) -> bytes:
    """Return one value as it came, RESP2 or RESP3; b"" at the end of the connection."""
    line = await reader.readline()
    kind, count = line[:1], line[1:].strip()
    if not kind or kind not in b"$=!*~>%|" or count == b"-1":
        return line
    if kind in b"$=!":
        return line + await reader.readexactly(int(count) + 2)
    parts = int(count) * (2 if kind in b"%|" else 1) + (kind == b"|")
    return line + b"".join([await _read_value(reader) for _ in range(parts)])


def _words_of(raw: bytes) -> list[bytes]:
    """Return the words of a call: an array of bulk strings."""
    words, position = [], raw.index(b"\r\n") + 2
    while position < len(raw):
        end = raw.index(b"\r\n", position)
        length = int(raw[position + 1 : end])
        words.append(raw[end + 2 : end + 2 + length])
        position = end + 2 + length + 2
    return words
