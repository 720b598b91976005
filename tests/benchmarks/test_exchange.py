"""The load client reads whole answers, however they arrive, and counts what the engine counted."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection, serve

from tests.benchmarks.load.client import run_round
from tests.benchmarks.load.rounds import Door, LoadError, Round, RoundResult, Target
from tests.support.places import LOOPBACK

USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
EVENTS = [
    {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
    {"choices": [{"delta": {"content": "One"}}]},
    {"choices": [{"delta": {"content": " two"}}]},
    {"choices": [], "usage": USAGE},
]
WHOLE = {"choices": [{"message": {"content": "One two"}}], "usage": USAGE}


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def chunk(payload: bytes) -> bytes:
    return f"{len(payload):x}\r\n".encode() + payload + b"\r\n"


def streamed() -> bytes:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    events = [chunk(b"data: " + compact(event) + b"\n\n") for event in EVENTS]
    return head + b"".join(events) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def whole(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


@asynccontextmanager
async def answering(answer: bytes, piece: int) -> AsyncIterator[Target]:
    """A server that gives the same answer to every request, `piece` bytes at a time."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await _until(reader, b"\r\n\r\n"):
            length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
            await reader.readexactly(length)
            for begin in range(0, len(answer), piece):
                writer.write(answer[begin : begin + piece])
                await writer.drain()
        writer.close()

    async with await asyncio.start_server(handle, LOOPBACK, 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield Target(name="a server", url=f"http://{LOOPBACK}:{port}", model="m")


async def _until(reader: asyncio.StreamReader, separator: bytes) -> bytes:
    try:
        return await reader.readuntil(separator)
    except asyncio.IncompleteReadError:
        return b""


def a_round(**changes: Any) -> Round:
    fields: dict[str, Any] = {"streams": 2, "requests": 5, "max_tokens": 2, "prompts": ["Count."]}
    return Round(**(fields | changes))


def assert_all_counted(result: RoundResult) -> None:
    assert [sample.completion_tokens for sample in result.samples] == [2] * 5
    assert all(0 < sample.ttft_ms <= sample.duration_ms for sample in result.samples)
    assert result.wall_ms > 0


@pytest.mark.parametrize("piece", [7, 10_000])
async def test_a_stream_is_read_to_its_end(piece: int) -> None:
    async with answering(streamed(), piece) as target:
        assert_all_counted(await run_round(target, a_round()))


@pytest.mark.parametrize("piece", [7, 10_000])
async def test_a_whole_answer_is_read_to_its_end(piece: int) -> None:
    async with answering(whole(compact(WHOLE)), piece) as target:
        assert_all_counted(await run_round(target, a_round(is_streaming=False)))


@pytest.mark.parametrize(
    "answer",
    [whole(b'{"error":{}}', "429 Too Many Requests"), whole(b"{}"), streamed()[:-200]],
    ids=["a refusal", "no usage", "a stream that ends early"],
)
async def test_what_is_no_complete_answer_ends_the_round(answer: bytes) -> None:
    async def ask(target: Target) -> None:
        await run_round(target, a_round(streams=1, requests=1))

    with pytest.raises(ExceptionGroup) as raised:
        if answer.endswith(b"}"):
            async with answering(answer, 10_000) as target:
                await ask(target)
        else:
            async with closing_after(answer) as target:
                await ask(target)
    assert raised.group_contains(LoadError)


@asynccontextmanager
async def closing_after(answer: bytes) -> AsyncIterator[Target]:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(handle, LOOPBACK, 0) as server:
        port = server.sockets[0].getsockname()[1]
        yield Target(name="a server", url=f"http://{LOOPBACK}:{port}", model="m")


@asynccontextmanager
async def over_websocket(
    handle: Callable[[ServerConnection], Awaitable[None]],
) -> AsyncIterator[Target]:
    async with serve(handle, LOOPBACK, 0, compression=None) as server:
        (socket, *_) = server.sockets
        port = socket.getsockname()[1]
        yield Target(name="a server", url=f"http://{LOOPBACK}:{port}", model="m", api_key="k")


async def test_a_websocket_answers_one_request_after_another() -> None:
    asked = []

    async def handle(connection: ServerConnection) -> None:
        async for frame in connection:
            asked.append(json.loads(frame)["body"]["messages"])
            for event in EVENTS[:-1]:
                await connection.send(compact({"type": "chunk", "id": "a", "data": event}).decode())
            await connection.ping()
            long_id = "x" * 300  # a frame whose length takes more than a byte
            done = {"type": "done", "id": "a", "request_id": long_id, "usage": USAGE}
            await connection.send(compact(done).decode())

    async with over_websocket(handle) as target:
        assert_all_counted(await run_round(target, a_round(door=Door.WEBSOCKET)))
    assert asked == [[{"role": "user", "content": "Count."}]] * 5


async def test_models_and_prompts_take_turns_each_in_its_own_order() -> None:
    asked = []

    async def handle(connection: ServerConnection) -> None:
        async for frame in connection:
            body = json.loads(frame)["body"]
            asked.append((body["model"], body["messages"][0]["content"]))
            for event in EVENTS[:-1]:
                await connection.send(compact({"type": "chunk", "id": "a", "data": event}).decode())
            await connection.send(compact({"type": "done", "id": "a", "usage": USAGE}).decode())

    async with over_websocket(handle) as target:
        both = replace(target, more_models=["n"])
        prompts = ["One.", "Two.", "Three."]
        await run_round(both, a_round(door=Door.WEBSOCKET, streams=1, requests=6, prompts=prompts))
    assert [model for model, _ in asked] == ["m", "n"] * 3
    assert [prompt for _, prompt in asked] == prompts * 2


async def test_an_error_over_the_websocket_ends_the_round() -> None:
    async def handle(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send('{"type":"error","id":"a","error":{"code":"no"}}')

    async with over_websocket(handle) as target:
        with pytest.raises(ExceptionGroup) as raised:
            await run_round(target, a_round(door=Door.WEBSOCKET, streams=1, requests=1))
    assert raised.group_contains(LoadError)


def test_a_target_beyond_this_machine_is_refused() -> None:
    with pytest.raises(ValueError, match="loopback"):
        Target(name="elsewhere", url="http://192.0.2.1:80", model="m")
