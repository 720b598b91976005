"""Adapters as the control plane offers them, and a store on loopback that may lie about them."""

import asyncio
import hashlib
import json
import os
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from msgspec import structs
from redis.asyncio import Redis
from safetensors.numpy import save

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.adapters import AdapterPins, AdapterSource
from gpu_workers.protocol.sealed import new_salt, seal, stream_key

MODULE = "base_model.model.model.layers.0.self_attn.q_proj"
# What Alice of Acme waits for at most, in any test of these.
IN_TIME_SECONDS = 10
FAR_AHEAD_MS = 2**52


@dataclass(frozen=True)
class MadeAdapter:
    """A small adapter that the simulated engine's base can have, as it is stored."""

    name: str
    plain: bytes
    sealed: bytes
    key: bytes

    @property
    def sha256(self) -> bytes:
        return hashlib.sha256(self.plain).digest()


def make_adapter(
    number: int = 0,
    *,
    tenant_id: str = "tenant-acme",
    features: int = 256,
    up: float = 0.0,
    config: Any = None,
) -> MadeAdapter:
    """`features` other than 256 fit no module of the base; at `up` 0 it changes nothing of that."""
    tensors: dict[str, Any] = {
        f"{MODULE}.lora_A.weight": np.full((8, features), number + 1, dtype=np.float32),
        f"{MODULE}.lora_B.weight": np.full((256, 8), up, dtype=np.float32),
    }
    if config is None:
        config = {"peft_type": "LORA", "r": 8, "lora_alpha": 16, "target_modules": ["q_proj"]}
    return made_of(save(tensors, metadata={"adapter_config": json.dumps(config)}), tenant_id)


def made_of(plain: bytes, tenant_id: str = "tenant-acme") -> MadeAdapter:
    """What is stored of an adapter, sealed for its tenant."""
    key, salt = os.urandom(32), new_salt()
    name = hashlib.sha256(tenant_id.encode() + plain).hexdigest()
    sealed = b"".join(seal([plain], key, salt=salt))
    return MadeAdapter(name, plain, sealed, stream_key(key, salt))


# Answers one GET; the connection is closed after it.
Answer = Callable[[StreamWriter], Awaitable[None]]


def gives(body: bytes, *, says: int | None = None) -> Answer:
    """Answers with a body; `says` is the length that its header lies about."""

    async def answer(writer: StreamWriter) -> None:
        length = len(body) if says is None else says
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % length + body)

    return answer


ETAG = '"as-it-was"'


def cuts(body: bytes, at: int, *, etag: str = ETAG) -> Answer:
    """Answers with as many bytes and no more, though it says that there are more."""

    async def answer(writer: StreamWriter) -> None:
        head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\netag: {etag}\r\n\r\n"
        writer.write(head.encode() + body[:at])

    return answer


def goes_on(
    body: bytes, first: int, *, until: int | None = None, etag: str = ETAG, says: str = ""
) -> Answer:
    """Answers with the range from `first` on, and is cut again before `until`; `says` is what its
    header says instead of that range."""

    async def answer(writer: StreamWriter) -> None:
        whole = says or f"bytes {first}-{len(body) - 1}/{len(body)}"
        head = f"HTTP/1.1 206 Partial\r\ncontent-length: {len(body) - first}\r\n"
        head += f"content-range: {whole}\r\netag: {etag}\r\n\r\n"
        writer.write(head.encode() + body[first:until])

    return answer


def streams(body: bytes) -> Answer:
    """Answers without a length, and ends where the body ends."""

    async def answer(writer: StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + body)

    return answer


def refuses(status: int, header: str = "") -> Answer:
    async def answer(writer: StreamWriter) -> None:
        head = f"HTTP/1.1 {status} No\r\ncontent-length: 0\r\n{header}\r\n"
        writer.write(head.encode())

    return answer


def stalls(body: bytes, released: asyncio.Event) -> Answer:
    """Answers with the first half, and with the rest once it is `released`."""

    async def answer(writer: StreamWriter) -> None:
        half = len(body) // 2
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body[:half])
        await writer.drain()
        await released.wait()
        writer.write(body[half:])

    return answer


class AdapterStore:
    """Serves what `offer` was given, on loopback; `answers` has what it says otherwise."""

    def __init__(self, redis: Redis, pool: str = "sim") -> None:
        self.asked: list[str] = []
        self.ranges: list[tuple[str, str]] = []  # `Range` and `If-Range` of each, where asked for
        self.answers: dict[str, list[Answer]] = {}
        self._redis = redis
        self._pool = pool
        self._bodies: dict[str, bytes] = {}
        self._port = 0

    async def offer(self, adapter: MadeAdapter, /, **changes: Any) -> AdapterSource:
        """Serve it, and write its source for the pool's workers; `changes` are lies in that."""
        self._bodies[adapter.name] = adapter.sealed
        source = AdapterSource(
            adapter=adapter.name,
            url=f"http://127.0.0.1:{self._port}/{adapter.name}?signature=wax",
            size_bytes=len(adapter.sealed),
            sha256=adapter.sha256,
            key=adapter.key,
            expires_at_ms=FAR_AHEAD_MS,
        )
        source = structs.replace(source, **changes)
        await self.write(adapter.name, source)
        return source

    async def write(self, name: str, source: AdapterSource) -> None:
        await self._redis.hset(keys.pool_adapter_sources(self._pool), name, codec.encode(source))

    async def pin(self, *adapters: MadeAdapter, **places: int) -> None:
        """Say that these are pinned and no others, each its tenant's first, or by name at a
        place."""
        pins = AdapterPins(places=dict.fromkeys([each.name for each in adapters], 1) | places)
        await self._redis.set(keys.pool_adapter_pins(self._pool), codec.encode(pins))

    async def withdraw(self, name: str) -> None:
        await self._redis.hdel(keys.pool_adapter_sources(self._pool), name)

    def answers_with(self, adapter: MadeAdapter, *answers: Answer) -> None:
        """The next requests get these, one each; those after them what is stored."""
        self.answers[adapter.name] = list(answers)

    @asynccontextmanager
    async def running(self) -> AsyncIterator["AdapterStore"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            name = head.split(b" ")[1].decode().lstrip("/").partition("?")[0]
            self.asked.append(name)
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:-2])
            if "range" in headers:
                self.ranges.append((headers["range"], headers["if-range"]))
            scripted = self.answers.get(name)
            await (scripted.pop(0) if scripted else gives(self._bodies[name]))(writer)
            await writer.drain()
        writer.close()
