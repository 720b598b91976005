"""GET /ws/v1/stream: many requests on one connection."""

import asyncio
import json
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Outcome
from inference.admission.gate import POLL_SECONDS
from inference.lifecycle.completions import GatewaySettings
from inference.websocket_api.application import WebsocketApi
from tests.support.gateways.cast import POOL
from tests.support.gateways.scripted_worker import ScriptedWorker, talk_until_cancelled
from tests.support.gateways.service import Service, a_tier
from tests.support.gateways.websocket import (
    BODY,
    ask,
    cancel,
    connected,
    receive,
    text_of,
    words_until_the_end,
)
from tests.support.metrics import sample
from tests.support.polling import eventually

REDIS_ERRORS = "penstock_gateway_redis_errors_total"
CONNECTIONS = "penstock_gateway_websockets"


async def test_requests_share_a_connection(service: Service, worker: ScriptedWorker) -> None:
    await worker.start()
    async with connected(service, key=service.alice) as socket:
        await ask(socket, "a")
        await ask(socket, "b")
        frames = await words_until_the_end(socket, {"a", "b"})
    for name in ("a", "b"):
        assert text_of(frames[name]) == "One two three"
        done = frames[name][-1]
        assert done["type"] == "done"
        assert done["finish_reason"] == "stop"
        assert done["usage"]["total_tokens"] == 6
        assert done["request_id"] in worker.runs


async def test_an_answer_that_does_not_stream_is_one_chunk(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    async with connected(service, key=service.alice) as socket:
        await ask(socket, "a", body={**BODY, "stream": False})
        chunk, done = await receive(socket), await receive(socket)
    assert chunk["data"]["object"] == "chat.completion"
    assert done["type"] == "done"


async def test_cancel_ends_one_request_and_counts_it(
    service: Service, worker: ScriptedWorker
) -> None:
    worker.script = talk_until_cancelled
    await worker.start()
    async with connected(service, key=service.alice) as socket:
        await ask(socket, "a")
        await ask(socket, "b")
        for _ in range(2):
            assert (await receive(socket))["type"] == "chunk"
        await cancel(socket, "a")
        done = await receive(socket)
        assert (done["id"], done["finish_reason"]) == ("a", "cancelled")
        assert done["usage"]["completion_tokens"] == 1
        await ask(socket, "a")
        assert (await receive(socket))["id"] == "a"


async def test_a_closed_connection_cancels_all_of_its_requests(
    service: Service, worker: ScriptedWorker
) -> None:
    worker.script = talk_until_cancelled
    await worker.start()
    async with connected(service, key=service.alice) as socket:
        for name in "abc":
            await ask(socket, name)
        for _ in range(3):
            await receive(socket)

    async def all_are_recorded() -> bool:
        return len(await worker.records()) == 3

    await eventually(all_are_recorded)
    assert {record.outcome for record in await worker.records()} == {Outcome.CANCELLED}


REQUEST = '"type": "request", "api": "completions"'


@pytest.mark.parametrize(
    ("frame", "name", "code", "param"),
    [
        ("no JSON", None, "invalid_frame", None),
        ("[]", None, "invalid_frame", None),
        ('{"type": "hello"}', None, "invalid_frame", "type"),
        ('{"type": "hello", "id": "z"}', "z", "invalid_frame", "type"),
        ('{"type": "request", "id": "a"}', "a", "invalid_frame", "api"),
        (f'{{{REQUEST}, "id": 7, "body": {{}}}}', None, "invalid_frame", "id"),
        (f'{{{REQUEST}, "id": "{"z" * 129}", "body": {{}}}}', None, "invalid_frame", "id"),
        ('{"type": "request", "id": "a", "api": "x", "body": {}}', "a", "invalid_frame", "api"),
        (f'{{{REQUEST}, "id": "a", "body": {{}}, "why": 1}}', "a", "invalid_frame", "why"),
        (
            f'{{{REQUEST}, "id": "a", "body": {{"messages": [{{"n": NaN}}]}}}}',
            "a",
            "invalid_frame",
            "body.messages[0].n",
        ),
        (f'{{{REQUEST}, "id": "a", "body": {{}}, "id": "b"}}', "b", "invalid_frame", "id"),
        (f'{{{REQUEST}, "id": "a", "body": {{}}, "body": {{}}}}', "a", "invalid_frame", "body"),
        ('{"type": "cancel", "id": "a", "why": 1}', "a", "invalid_frame", "why"),
        ('{"type": "cancel", "id": "nobody"}', "nobody", "unknown_request", "id"),
        (b"\x00\x01", None, "invalid_frame", None),
        ("x" * 1_048_577, None, "frame_too_large", None),
        (f'{{"id": "a", "body": {"[" * 200_000}', None, "invalid_frame", None),
    ],
)
async def test_a_wrong_frame_is_told_under_its_id_and_the_connection_lives(
    service: Service,
    worker: ScriptedWorker,
    frame: str | bytes,
    name: str | None,
    code: str,
    param: str | None,
) -> None:
    await worker.start()
    async with connected(service, key=service.alice) as socket:
        await socket.send(frame)
        error = await receive(socket)
        assert (error["type"], error["id"], error["error"]["code"]) == ("error", name, code)
        assert error["error"]["param"] == param
        await ask(socket, "a")
        assert text_of((await words_until_the_end(socket, {"a"}))["a"]) == "One two three"


async def test_a_wrong_body_ends_its_request_only(service: Service, worker: ScriptedWorker) -> None:
    await worker.start()
    async with connected(service, key=service.alice) as socket:
        await ask(socket, "bad", body={**BODY, "temperature": 9})
        error = await receive(socket)
        assert (error["id"], error["error"]["param"]) == ("bad", "temperature")
        await ask(socket, "good")
        await words_until_the_end(socket, {"good"})


async def test_an_id_in_use_is_refused_and_the_first_goes_on(
    service: Service, worker: ScriptedWorker
) -> None:
    worker.script = talk_until_cancelled
    await worker.start()
    async with connected(service, key=service.alice) as socket:
        await ask(socket, "a")
        await receive(socket)
        await ask(socket, "a")
        error = await receive(socket)
        assert (error["id"], error["error"]["code"]) == (None, "duplicate_id")
        await cancel(socket, "a")
        assert (await receive(socket))["type"] == "done"


async def test_a_wrong_frame_of_an_open_request_does_not_end_it(
    service: Service, worker: ScriptedWorker
) -> None:
    worker.script = talk_until_cancelled
    await worker.start()
    async with connected(service, key=service.alice) as socket:
        await ask(socket, "a")
        await receive(socket)
        await socket.send('{"type": "cancel", "id": "a", "why": 1}')
        error = await receive(socket)
        while error["type"] != "error":
            error = await receive(socket)
        assert (error["id"], error["error"]["param"]) == (None, "why")
        await cancel(socket, "a")
        last = await receive(socket)
        while last["type"] == "chunk":
            last = await receive(socket)
        assert last["type"] == "done"


async def test_a_connection_has_a_limit_of_requests(
    service: Service, worker: ScriptedWorker
) -> None:
    async with connected(service, key=service.alice) as socket:
        for name in "abcde":
            await ask(socket, name)
        error = await receive(socket)
    assert error["error"]["code"] == "connection_requests_exceeded"
    assert "'e'" in error["error"]["message"]


async def test_a_tenant_has_a_limit_of_connections(
    service: Service, worker: ScriptedWorker
) -> None:
    """All of its keys count; another tenant's connections are its own; what has closed is free."""
    await service.snapshot.put_tenant("Acme", tier=a_tier(max_websockets=2))
    another = await service.snapshot.add_key("Acme")
    await worker.start()
    async with connected(service, key=service.alice) as socket:
        async with connected(service, key=another):
            with pytest.raises(InvalidStatus) as refused:
                async with connected(service, key=another):
                    pass
            async with connected(service, key=service.bob) as bobs:
                await ask(bobs, "a")
                assert (await words_until_the_end(bobs, {"a"}))["a"][-1]["type"] == "done"
        response = refused.value.response
        error = json.loads(response.body)["error"]
        assert (response.status_code, error["code"]) == (429, "too_many_websockets")
        assert "Tier standard allows 2 open websockets at a gateway" in error["message"]
        assert response.headers["retry-after"] == "5"
        await eventually(lambda: sample(CONNECTIONS) == 1)
        async with connected(service, key=another):
            await ask(socket, "a")
            assert (await words_until_the_end(socket, {"a"}))["a"][-1]["type"] == "done"


async def test_a_ticket_works_once(service: Service, worker: ScriptedWorker) -> None:
    await worker.start()
    async with service.client() as client:
        response = await client.post("/v1/stream/tickets")
        assert response.headers["cache-control"] == "no-store"
        answer = response.json()
    assert answer["expires_in"] == 30
    query = f"?ticket={answer['ticket']}"
    async with connected(service, query=query, Origin="http://app.example") as socket:
        await ask(socket, "a")
        frames = await words_until_the_end(socket, {"a"})
        assert text_of(frames["a"]) == "One two three"
    with pytest.raises(InvalidStatus) as refused:
        async with connected(service, query=query):
            pass
    assert refused.value.response.status_code == 401


@pytest.mark.parametrize(
    ("key", "origin", "status"),
    [
        (None, None, 401),
        ("pk-wrong", None, 401),
        ("alice", "http://evil.example", 403),
    ],
)
async def test_the_handshake_is_refused(
    service: Service, key: str | None, origin: str | None, status: int
) -> None:
    headers = {"Origin": origin} if origin else {}
    with pytest.raises(InvalidStatus) as refused:
        async with connected(service, key=service.alice if key == "alice" else key, **headers):
            pass
    assert refused.value.response.status_code == status
    assert json.loads(refused.value.response.body or b"")["error"]["message"]


async def test_a_key_revoked_meanwhile_stops_working(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    async with connected(service, key=service.alice) as socket:
        await service.snapshot.put_key(
            service.alice, "Acme", refusal="This API key has been revoked."
        )

        async def is_refused() -> bool:
            await ask(socket, "a")
            frames = await words_until_the_end(socket, {"a"})
            return bool(frames["a"][-1]["type"] == "error")

        assert await eventually(is_refused, 10 * POLL_SECONDS)


async def test_limits_hold_over_websockets_too(service: Service, worker: ScriptedWorker) -> None:
    await worker.start()
    key = await service.snapshot.add_key("Globex", tier=a_tier(requests_per_minute=1))
    async with connected(service, key=key) as socket:
        await ask(socket, "a")
        await words_until_the_end(socket, {"a"})
        await ask(socket, "b")
        error = await receive(socket)
    assert error["error"]["code"] == "requests_per_minute_exceeded"


class BrokenSocket:
    """A connection whose client vanishes at the first chunk: no disconnect is ever received."""

    def __init__(self, key: str) -> None:
        self.scope = {
            "type": "websocket",
            "path": "/ws/v1/stream",
            "query_string": b"",
            "headers": [(b"authorization", f"Bearer {key}".encode())],
        }
        request = {"type": "request", "id": "a", "api": "chat.completions", "body": BODY}
        self._messages = [
            {"type": "websocket.connect"},
            {"type": "websocket.receive", "text": json.dumps(request)},
        ]
        self.is_gone = asyncio.Event()

    async def receive(self) -> Any:
        if self._messages:
            return self._messages.pop(0)
        return await asyncio.Future()

    async def send(self, message: Any) -> None:
        if message["type"] == "websocket.send" and '"notice"' not in message["text"]:
            self.is_gone.set()
            raise OSError("the client is gone")


async def test_a_send_to_a_client_that_is_gone_cancels_and_blames_nobody_else(
    service: Service, gateway_settings: GatewaySettings, worker: ScriptedWorker
) -> None:
    worker.script = talk_until_cancelled
    await worker.start()
    redis_errors, connections = sample(REDIS_ERRORS), sample(CONNECTIONS)
    socket = BrokenSocket(service.alice)
    application = WebsocketApi(service.gateway.completions, gateway_settings)
    serving = asyncio.create_task(application(socket.scope, socket.receive, socket.send))
    await asyncio.wait_for(socket.is_gone.wait(), 5)
    [record] = await eventually(worker.records)
    assert record.outcome is Outcome.CANCELLED
    assert sample(REDIS_ERRORS) == redis_errors
    assert sample(CONNECTIONS) == connections
    serving.cancel()


async def test_a_handler_that_is_stopped_takes_its_requests_with_it(
    service: Service, worker: ScriptedWorker, gateway_settings: GatewaySettings
) -> None:
    """As a server does whose time to shut down is over."""
    connections = sample(CONNECTIONS)
    socket = BrokenSocket(service.alice)
    application = WebsocketApi(service.gateway.completions, gateway_settings)
    serving = asyncio.create_task(application(socket.scope, socket.receive, socket.send))
    await eventually(lambda: worker.redis.zcard(keys.pool_queue(POOL)))
    assert sample(CONNECTIONS) == connections + 1
    serving.cancel()
    [record] = await eventually(worker.records)
    assert record.outcome is Outcome.CANCELLED
    assert sample(CONNECTIONS) == connections
