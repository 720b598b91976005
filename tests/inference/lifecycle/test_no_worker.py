"""A model that no worker serves is said so at once; one that is expected is waited for."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import openai
import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import functions, keys
from gpu_workers.protocol.messages import WorkerState
from inference.dispatch.worker_registry import WorkerRegistry
from inference.lifecycle.completions import GatewaySettings
from tests.support.gateways.cast import MODEL, POOL, encoded_worker_info
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import Service, Snapshot, a_service
from tests.support.gateways.websocket import ask, connected, receive
from tests.support.polling import eventually

CHAT = "/v1/chat/completions"
ASKS: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Count."}]}
STREAMS = ASKS | {"stream": True}


@pytest.fixture
async def brisk(gateway_settings: GatewaySettings, snapshot: Snapshot) -> AsyncIterator[Service]:
    """As a deployment is: it expects a worker for two minutes after it was heard of."""
    settings = replace(gateway_settings, worker_expected_seconds=120.0)
    async with a_service(settings, snapshot) as service:
        yield service


def is_queued(worker: ScriptedWorker) -> Any:
    return worker.redis.zcard(keys.pool_queue(POOL))


@pytest.mark.parametrize("body", [ASKS, STREAMS], ids=["whole", "stream"])
async def test_a_model_that_no_worker_serves_is_refused_at_once(
    brisk: Service, dispatch_redis: Redis, body: dict[str, Any]
) -> None:
    async with asyncio.timeout(5), brisk.client() as client:
        answer = await client.post(CHAT, json=body)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "no_worker"
    assert answer.json()["error"]["message"] == f"No worker is running for model {MODEL!r}."
    assert answer.headers["x-should-retry"] == "false"
    assert await dispatch_redis.hlen(keys.tenant_reservations("acme")) == 0
    assert await dispatch_redis.zcard(keys.pool_queue(POOL)) == 0


async def test_a_websocket_is_told_at_once_too(brisk: Service) -> None:
    async with asyncio.timeout(5), connected(brisk, key=brisk.alice) as socket:
        await ask(socket, "a")
        error = await receive(socket)
    assert (error["id"], error["error"]["code"]) == ("a", "no_worker")


async def test_requests_wait_for_a_worker_that_died_or_left_a_moment_ago(
    brisk: Service, worker: ScriptedWorker
) -> None:
    for depart in (worker.die, lambda: worker.call(functions.LEAVE, worker.worker_id)):
        await worker.start()
        await depart()
        async with brisk.client() as client:
            asked = asyncio.create_task(client.post(CHAT, json=ASKS))
            await eventually(lambda: is_queued(worker))
            await worker.start()
            answer = await asked
        assert answer.status_code == 200


async def test_a_request_that_waits_for_a_worker_that_starts_is_told_so(
    brisk: Service, worker: ScriptedWorker
) -> None:
    info = encoded_worker_info(worker.worker_id, state=WorkerState.STARTING)
    await worker.call(functions.REGISTER, worker.worker_id, worker.worker_id, info)
    async with brisk.client() as client:
        asked = asyncio.create_task(client.post(CHAT, json=ASKS))
        await eventually(lambda: is_queued(worker))
        await worker.start()
        answer = await asked
    assert (answer.status_code, answer.headers["x-penstock-queue"]) == (200, "starting")


async def test_a_model_that_scales_from_zero_is_waited_for(
    brisk: Service, snapshot: Snapshot, worker: ScriptedWorker
) -> None:
    await snapshot.add_model("cold", scales_from_zero=True)
    async with brisk.client() as client:
        asked = asyncio.create_task(client.post(CHAT, json=ASKS | {"model": "cold"}))
        await eventually(lambda: is_queued(worker))
        await worker.start()
        assert (await asked).status_code == 200


async def heard(redis: Redis, seconds_ago: float) -> None:
    seconds, _ = await redis.time()
    ms = (seconds - seconds_ago) * 1000
    await redis.hset(keys.pool_scheduler(POOL), "heard", int(ms))


async def test_a_worker_is_expected_for_as_long_as_the_setting_says(dispatch_redis: Redis) -> None:
    assert not await WorkerRegistry(dispatch_redis).is_expected(POOL, 120)
    await heard(dispatch_redis, 100)
    assert await WorkerRegistry(dispatch_redis).is_expected(POOL, 120)
    assert not await WorkerRegistry(dispatch_redis).is_expected(POOL, 60)


async def test_a_redis_that_lost_everything_leaves_its_workers_expected(
    dispatch_redis: Redis, worker: ScriptedWorker
) -> None:
    now = 0.0
    registry = WorkerRegistry(dispatch_redis, clock=lambda: now)
    await worker.start()
    assert await registry.is_expected(POOL, 120)
    for key in await dispatch_redis.keys("{m:*"):
        await dispatch_redis.delete(key)
    now = 100.0
    assert await registry.workers(POOL) == ()
    assert await registry.is_expected(POOL, 120)
    now = 200.0
    assert not await registry.is_expected(POOL, 120)


async def test_a_stream_that_waits_in_the_queue_gives_a_sign_within_a_second(
    service: Service, worker: ScriptedWorker
) -> None:
    async with (
        asyncio.timeout(10),
        service.client() as client,
        client.stream("POST", CHAT, json=STREAMS) as answer,
    ):
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        parts = answer.aiter_text()
        assert await anext(parts) == ": ping\n\n"
        await worker.start()
        text = "".join([part async for part in parts])
    assert text.endswith("data: [DONE]\n\n")
    assert text.count("data: {") == 3


async def test_the_official_client_takes_the_sign_and_then_the_words(
    service: Service, worker: ScriptedWorker
) -> None:
    async with (
        asyncio.timeout(10),
        openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key=service.alice) as client,
    ):
        messages: Any = ASKS["messages"]
        stream = await client.chat.completions.create(model=MODEL, messages=messages, stream=True)
        assert await worker.redis.zcard(keys.pool_queue(POOL)) == 1
        await worker.start()
        words = [chunk.choices[0].delta.content async for chunk in stream]
    assert words == ["One", " two", " three"]


async def test_a_stream_that_has_begun_ends_with_the_error_if_nobody_takes_it(
    impatient_service: Service,
) -> None:
    async with impatient_service.client() as client:
        answer = await client.post(CHAT, json=STREAMS)
    *_, last = (line for line in answer.text.split("\n\n") if line)
    assert answer.status_code == 200
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "queue_timeout"


async def test_a_websocket_hears_that_its_request_waits(
    service: Service, worker: ScriptedWorker
) -> None:
    async with asyncio.timeout(10), connected(service, key=service.alice) as socket:
        await ask(socket, "a")
        first, second = await receive(socket), await receive(socket)
        await worker.start()
        third = await receive(socket)
    assert first == {"type": "notice", "id": "a", "queue": "starting"}
    assert second == {"type": "notice", "id": "a", "queue": "waiting"}
    assert third["type"] == "chunk"
