"""A client that stops reading is ended after the stall limit; one that reads slowly is not."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import websockets

from gpu_workers.protocol.messages import Outcome
from inference.lifecycle.completions import GatewaySettings
from inference.streaming.stalled_clients import send_at_once
from tests.support.gateways.cast import MODEL
from tests.support.gateways.scripted_worker import Run, ScriptedWorker
from tests.support.gateways.service import Service, Snapshot, a_service
from tests.support.metrics import sample
from tests.support.polling import eventually

BODY = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "Talk."}]}
STALL_SECONDS = 0.3
WORD = "x" * 20_000


@pytest.fixture
async def service(gateway_settings: GatewaySettings, snapshot: Snapshot) -> AsyncIterator[Service]:
    settings = replace(gateway_settings, stall_seconds=STALL_SECONDS)
    async with a_service(settings, snapshot) as service:
        yield service


async def talk_without_end(run: Run) -> None:
    """Steadily, and never so much ahead that the cap on unread output would come first."""
    while not run.cancelled.is_set():
        await run.say(WORD)
        await asyncio.sleep(0.004 if run.seq < 300 else 0.05)
    await run.end(Outcome.CANCELLED)


def _count() -> float:
    return sample("penstock_gateway_stalled_connections_total")


def _narrow(port: int) -> socket.socket:
    """A connection whose client has hardly any buffer of its own."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", port))
    connection.setblocking(False)
    return connection


async def _ask(service: Service) -> socket.socket:
    connection = _narrow(int(service.url.rpartition(":")[2]))
    body = json.dumps(BODY).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n"
    head += f"Authorization: Bearer {service.alice}\r\n\r\n"
    await asyncio.get_running_loop().sock_sendall(connection, head.encode() + body)
    return connection


async def test_a_stream_whose_client_reads_nothing_is_ended_and_recorded(
    service: Service, worker: ScriptedWorker
) -> None:
    worker.script = talk_without_end
    await worker.start()
    before = _count()
    with await _ask(service) as connection:
        [record] = await eventually(worker.records, 15)
        assert record.outcome is Outcome.CANCELLED
        assert _count() == before + 1
        assert not (await _rest_of(connection)).endswith(b"[DONE]\n\n")


async def _rest_of(connection: socket.socket) -> bytes:
    """The last of what the kernel still had, up to the end of the connection."""
    loop = asyncio.get_running_loop()
    last = b""
    with contextlib.suppress(ConnectionResetError):
        while part := await loop.sock_recv(connection, 65_536):
            last = (last + part)[-100:]
    return last


async def test_a_stream_whose_client_reads_slowly_goes_on(
    service: Service, worker: ScriptedWorker
) -> None:
    worker.script = talk_without_end
    await worker.start()
    before = _count()
    loop = asyncio.get_running_loop()
    with await _ask(service) as connection:
        begun = loop.time()
        while loop.time() < begun + 3 * STALL_SECONDS:
            assert await loop.sock_recv(connection, 1024)
            await asyncio.sleep(STALL_SECONDS / 10)
        assert _count() == before
    [record] = await eventually(worker.records, 15)
    assert record.outcome is Outcome.CANCELLED


class Connection:
    """What a server's `send` belongs to."""

    def __init__(self, *, unsent_bytes: int, is_full: bool = False) -> None:
        self.transport = self
        self.sent: list[object] = []
        self._unsent_bytes = unsent_bytes
        self._is_full = is_full

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    async def send(self, message: object) -> None:
        if self._is_full:
            await asyncio.Event().wait()
        if message == "broken":
            raise RuntimeError
        self.sent.append(message)


async def test_what_need_not_wait_is_sent_at_once() -> None:
    connection = Connection(unsent_bytes=0)
    assert send_at_once(connection.send, "one")
    assert connection.sent == ["one"]
    assert not send_at_once(connection.send, "broken"), "raised to whoever waits for its turn"


@pytest.mark.parametrize(
    "connection",
    [Connection(unsent_bytes=1), Connection(unsent_bytes=0, is_full=True)],
    ids=["unsent", "full"],
)
async def test_what_would_have_to_wait_is_not_sent(connection: Connection) -> None:
    assert not send_at_once(connection.send, "one")
    assert connection.sent == []


async def test_a_send_that_is_no_connections_is_left_alone() -> None:
    async def send(message: object) -> None:
        raise AssertionError

    assert not send_at_once(send, "one")


async def test_a_websocket_whose_client_reads_nothing_is_ended_with_its_requests(
    service: Service, worker: ScriptedWorker
) -> None:
    worker.script = talk_without_end
    await worker.start()
    before = _count()
    url = service.url.replace("http", "ws") + "/ws/v1/stream"
    connection = _narrow(int(service.url.rpartition(":")[2]))
    async with websockets.connect(
        url,
        sock=connection,
        additional_headers={"Authorization": f"Bearer {service.alice}"},
        max_queue=1,
        compression=None,
        close_timeout=0.1,
    ) as client:
        frame = {"type": "request", "id": "a", "api": "chat.completions", "body": BODY}
        await client.send(json.dumps(frame))
        [record] = await eventually(worker.records, 15)
        assert record.outcome is Outcome.CANCELLED
        assert _count() > before
