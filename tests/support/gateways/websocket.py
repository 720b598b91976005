"""A client of the websocket door."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.support.gateways.cast import MODEL
from tests.support.gateways.service import Service

BODY = {"model": MODEL, "messages": [{"role": "user", "content": "Count."}], "stream": True}


@asynccontextmanager
async def connected(
    service: Service, *, key: str | None = None, query: str = "", **headers: str
) -> AsyncIterator[ClientConnection]:
    address = f"{service.url.replace('http', 'ws', 1)}/ws/v1/stream{query}"
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    async with connect(address, additional_headers=headers) as socket:
        yield socket


async def ask(socket: ClientConnection, name: str, **changes: Any) -> None:
    frame = {"type": "request", "id": name, "api": "chat.completions", "body": BODY}
    await socket.send(json.dumps(frame | changes))


async def cancel(socket: ClientConnection, name: str) -> None:
    await socket.send(json.dumps({"type": "cancel", "id": name}))


async def receive(socket: ClientConnection) -> Any:
    return json.loads(await socket.recv())


async def words_until_the_end(socket: ClientConnection, names: set[str]) -> dict[str, list[Any]]:
    """The frames of each request until all have ended."""
    frames: dict[str, list[Any]] = {name: [] for name in names}
    while not all(each and each[-1]["type"] != "chunk" for each in frames.values()):
        frame = await receive(socket)
        frames[frame["id"]].append(frame)
    return frames


def text_of(frames: list[Any]) -> str:
    chunks = [frame["data"] for frame in frames if frame["type"] == "chunk"]
    return "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)
