"""What is open when its key or tenant may not go on ends within seconds, typed and on record."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis
from websockets.exceptions import ConnectionClosed

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Outcome
from inference.admission.gate import POLL_SECONDS
from tests.support.gateways.cast import MODEL
from tests.support.gateways.scripted_worker import ScriptedWorker, talk_until_cancelled
from tests.support.gateways.service import Service
from tests.support.gateways.websocket import ask, connected, receive
from tests.support.polling import eventually

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Count."}]
STREAM = {"model": MODEL, "stream": True, "messages": MESSAGES}
LIMIT_SECONDS = 5.0

End = Callable[[Service, str], Awaitable[None]]


async def revoke(service: Service, key: str) -> None:
    await service.snapshot.put_key(key, "Acme", refusal="This API key has been revoked.")


async def expire(service: Service, key: str) -> None:
    in_a_second = time.time_ns() // 1_000_000 + 1000
    await service.snapshot.put_key(key, "Acme", expires_at_ms=in_a_second)


async def suspend(service: Service, key: str) -> None:
    await service.snapshot.put_tenant("Acme", refusal="Acme is suspended.")


async def delete(service: Service, key: str) -> None:
    await service.snapshot.remove_key(key)


ENDS = [
    (revoke, "api_key_revoked"),
    (expire, "api_key_expired"),
    (suspend, "tenant_suspended"),
    (delete, "invalid_api_key"),
]


@pytest.mark.parametrize(("end", "code"), ENDS)
async def test_an_open_stream_ends_with_the_refusal_and_is_settled(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis, end: End, code: str
) -> None:
    worker.script = talk_until_cancelled
    await worker.start()
    async with (
        service.client() as client,
        client.stream("POST", CHAT, json=STREAM) as answer,
    ):
        lines = answer.aiter_lines()
        assert "One" in await anext(lines)
        await end(service, service.alice)
        began = time.monotonic()
        rest = [line async for line in lines if line.startswith("data: ")]
        assert time.monotonic() - began < LIMIT_SECONDS
    error = json.loads(rest[-1].removeprefix("data: "))["error"]
    assert error["code"] == code
    [record] = await eventually(worker.records)
    assert record.outcome is Outcome.CANCELLED
    assert record.usage.completion_tokens == 1

    async def is_settled() -> bool:
        return not await dispatch_redis.exists(keys.tenant_reservations("acme"))

    await eventually(is_settled)


async def test_an_answer_that_has_not_begun_becomes_the_refusal(
    service: Service, worker: ScriptedWorker
) -> None:
    worker.script = talk_until_cancelled
    await worker.start()

    async def revoke_when_it_runs() -> None:
        await eventually(lambda: worker.runs)
        await revoke(service, service.alice)

    async with service.client() as client:
        asked, _ = await asyncio.gather(
            client.post(CHAT, json=STREAM | {"stream": False}), revoke_when_it_runs()
        )
    assert asked.status_code == 401
    assert asked.json()["error"]["code"] == "api_key_revoked"


async def test_others_go_on(service: Service, worker: ScriptedWorker) -> None:
    worker.script = talk_until_cancelled
    await worker.start()
    async with (
        service.client(service.bob) as bob,
        service.client() as alice,
        bob.stream("POST", CHAT, json=STREAM) as his,
        alice.stream("POST", CHAT, json=STREAM) as hers,
    ):
        lines = his.aiter_lines()
        assert "One" in await anext(lines)
        await suspend(service, service.alice)
        assert "tenant_suspended" in (await hers.aread()).decode()
        [run] = [each for each in worker.runs.values() if each.envelope.tenant_id == "globex"]
        assert run.envelope.request_id not in worker.cancelled
        await run.say(" two")
        async for line in lines:
            if "two" in line:
                break


async def test_a_snapshot_that_is_gone_ends_nothing(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    worker.script = talk_until_cancelled
    await worker.start()
    async with (
        service.client() as client,
        client.stream("POST", CHAT, json=STREAM) as answer,
    ):
        lines = answer.aiter_lines()
        await anext(lines)
        await dispatch_redis.delete(
            keys.policy_version(), keys.policy_api_keys(), keys.policy_tenants()
        )
        await eventually(lambda: not service.gateway.completions.admission.has_policy)
        [request] = service.gateway.completions.settlement.requests.all()
        admission = service.gateway.completions.admission
        assert await admission.refusal_of(request.caller) is None
        [run] = worker.runs.values()
        await run.say(" two")
        async for line in lines:
            if "two" in line:
                break


@pytest.mark.parametrize(("end", "code"), ENDS)
async def test_a_websocket_ends_after_what_it_has_open(
    service: Service, worker: ScriptedWorker, end: End, code: str
) -> None:
    worker.script = talk_until_cancelled
    await worker.start()
    async with connected(service, key=service.alice) as socket:
        await ask(socket, "a")
        assert (await receive(socket))["type"] == "chunk"
        await end(service, service.alice)
        began = time.monotonic()
        frames: list[Any] = []
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                frames.append(await receive(socket))
        assert time.monotonic() - began < LIMIT_SECONDS
    assert [(frame["type"], frame["id"]) for frame in frames] == [("error", "a"), ("error", None)]
    assert {frame["error"]["code"] for frame in frames} == {code}
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == (4403 if end is suspend else 4401)
    [record] = await eventually(worker.records)
    assert record.outcome is Outcome.CANCELLED
    assert record.usage.completion_tokens == 1


async def test_an_idle_websocket_ends_too(service: Service) -> None:
    async with connected(service, key=service.alice) as socket:
        await revoke(service, service.alice)
        assert (await receive(socket))["error"]["code"] == "api_key_revoked"
        with pytest.raises(ConnectionClosed):
            await receive(socket)


async def test_new_requests_are_refused_within_a_second(service: Service) -> None:
    async with service.client() as client:
        assert (await client.get("/v1/models")).status_code == 200
        began = time.monotonic()
        await revoke(service, service.alice)

        async def is_refused() -> bool:
            return (await client.get("/v1/models")).status_code == 401

        await eventually(is_refused)
    assert time.monotonic() - began < POLL_SECONDS + 0.5
