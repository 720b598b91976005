"""The dispatch Redis comes back empty in the middle of everything: what is open goes on."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from httpx import Response
from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Outcome
from inference.lifecycle.inflight_requests import InflightRequests
from inference.redis_functions import LIBRARIES, library_text
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.processes import a_sim_worker
from tests.support.gateways.scripted_worker import Run, ScriptedWorker
from tests.support.gateways.service import Service, a_tier
from tests.support.polling import eventually

CHAT = "/v1/chat/completions"
STREAM = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Talk."}],
    "stream": True,
    "max_tokens": 150,
    "ignore_eos": True,
}


async def lose_everything(redis: Redis) -> None:
    """As a Redis that was killed and started again: no data, no functions, no connections."""
    await redis.flushall()
    await redis.function_flush()
    await redis.client_kill_filter(_type="normal", skipme=True)


async def come_back(redis: Redis, service: Service) -> None:
    """What the control plane does within seconds: the functions, then the snapshot."""
    for library in LIBRARIES:
        await redis.function_load(library_text(library), replace=True)
    await service.snapshot.write_again()


def words(answer: str) -> list[str]:
    events = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith("data: {")]
    return [event["choices"][0]["delta"].get("content", "") for event in events]


@pytest.fixture
async def sim_worker(
    service: Service, worker_redis_url: Callable[[str], str]
) -> AsyncIterator[None]:
    async with a_sim_worker(worker_redis_url(POOL)):
        yield


async def test_what_is_open_is_reserved_again_before_anybody_is_admitted(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    """What ends meanwhile stays reserved: it may not be on record by the time of the snapshot."""
    may_end = asyncio.Event()

    async def end_when_told(run: Run) -> None:
        await run.say("One")
        await may_end.wait()
        await run.push(run.terminal(Outcome.COMPLETED))

    worker.script = end_when_told
    await worker.start()
    requests = service.gateway.completions.settlement.requests
    gateway_id = service.gateway.completions.hub.gateway_id
    async with service.client() as client:
        asked = asyncio.create_task(client.post(CHAT, json=STREAM))
        await eventually(lambda: _has_begun(requests))
        [request] = requests.in_pool(POOL)
        await lose_everything(dispatch_redis)
        late = asyncio.create_task(client.post(CHAT, json=STREAM))
        for library in LIBRARIES:
            await dispatch_redis.function_load(library_text(library), replace=True)
        resynced = keys.gateways_resynced()
        await eventually(lambda: dispatch_redis.sismember(resynced, gateway_id))
        may_end.set()
        await asked
        reserved: Any = await dispatch_redis.hkeys(keys.tenant_reservations("acme"))
        assert reserved == [request.request_id.encode()]
        await service.snapshot.write_again()
        await eventually(lambda: _is_only_other_reserved(dispatch_redis, request.request_id))
        late.cancel()


async def _is_only_other_reserved(redis: Redis, request_id: str) -> bool:
    reserved: Any = await redis.hkeys(keys.tenant_reservations("acme"))
    return len(reserved) == 1 and reserved != [request_id.encode()]


async def _is_nothing_reserved(redis: Redis) -> bool:
    return not await redis.exists(keys.tenant_reservations("acme"), keys.tenant_open("acme"))


@pytest.mark.stack
async def test_streams_go_on_and_every_reservation_is_made_again_and_settled(
    service: Service, sim_worker: None, dispatch_redis: Redis
) -> None:
    async with service.client() as client:
        undisturbed = (await client.post(CHAT, json=STREAM)).text
        asked = [asyncio.create_task(client.post(CHAT, json=STREAM)) for _ in range(4)]
        in_pool = service.gateway.completions.settlement.requests.in_pool
        await eventually(lambda: all(each.is_running for each in in_pool(POOL)))
        await eventually(lambda: len(in_pool(POOL)) == 4)
        await lose_everything(dispatch_redis)
        late = asyncio.create_task(client.post(CHAT, json=STREAM))
        await come_back(dispatch_redis, service)
        await eventually(lambda: dispatch_redis.hlen(keys.tenant_reservations("acme")))
        answers = [answer.text for answer in await asyncio.gather(*asked, late)]
    assert [words(answer) for answer in answers] == [words(undisturbed)] * 5
    await eventually(lambda: _is_nothing_reserved(dispatch_redis))
    assert await dispatch_redis.zcard(keys.pool_open_requests(POOL)) == 0


async def test_what_waited_is_queued_again_and_served(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    async with service.client() as client:
        asked = asyncio.create_task(client.post(CHAT, json=STREAM))
        await eventually(lambda: dispatch_redis.zcard(keys.pool_queue(POOL)))
        await eventually(lambda: dispatch_redis.exists(keys.pool_epoch(POOL)))
        await lose_everything(dispatch_redis)
        await come_back(dispatch_redis, service)
        await eventually(lambda: dispatch_redis.zcard(keys.pool_queue(POOL)))
        await worker.start()
        assert words((await asked).text) == ["One", " two", " three"]
    assert [each.outcome for each in await worker.records()] == [Outcome.COMPLETED]


async def _lose_a_stream_that_has_begun(
    service: Service, worker: ScriptedWorker, redis: Redis, asked: "asyncio.Task[Response]"
) -> None:
    """Its worker, which is a scripted one, does not come back."""
    requests = service.gateway.completions.settlement.requests
    await eventually(lambda: asked.done() or _has_begun(requests))
    await eventually(lambda: redis.exists(keys.pool_epoch(POOL)))
    await lose_everything(redis)
    await come_back(redis, service)


def _has_begun(requests: InflightRequests) -> bool:
    return any(each.stream.has_begun for each in requests.in_pool(POOL))


async def say_one_word(run: Run) -> None:
    await run.say("One")


async def test_a_stream_that_cannot_go_on_elsewhere_ends_typed_and_is_on_record(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    worker.script = say_one_word
    await worker.start()
    async with service.client() as client:
        asked = asyncio.create_task(client.post(CHAT, json={**STREAM, "seed": 1}))
        await _lose_a_stream_that_has_begun(service, worker, dispatch_redis, asked)
        answer = (await asked).text
    assert '"worker_lost"' in answer
    [record] = await worker.records()
    assert (record.outcome, record.usage.completion_tokens) == (Outcome.FAILED, 1)


async def test_a_stream_that_nobody_adopts_waits_to_go_on_from_what_its_client_has(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    worker.script = say_one_word
    await worker.start()
    async with service.client() as client:
        asked = asyncio.create_task(client.post(CHAT, json=STREAM))
        await _lose_a_stream_that_has_begun(service, worker, dispatch_redis, asked)
        await eventually(lambda: dispatch_redis.zcard(keys.pool_queue(POOL)))
        queued: Any = await dispatch_redis.zrange(keys.pool_queue(POOL), 0, -1)
        key = keys.pool_request(POOL, queued[0].decode())
        envelope: Any = await dispatch_redis.hget(key, "envelope")
        asked.cancel()
    assert len(codec.decode_envelope(envelope).resumed_token_ids) == 1


async def test_a_request_in_the_gap_waits_to_its_deadline_and_then_is_told_when_to_retry(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    await worker.start()
    key = await service.snapshot.add_key("Acme", tier=a_tier(max_queue_seconds=1))
    async with service.client(key) as client:
        assert (await client.get("/v1/models")).status_code == 200
        await dispatch_redis.function_flush()
        answer = await client.post(CHAT, json=STREAM)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "2"


async def test_an_emptied_redis_makes_no_key_unknown(
    service: Service, dispatch_redis: Redis
) -> None:
    async with service.client() as client:
        await dispatch_redis.flushall()
        asking = asyncio.create_task(client.get("/v1/models"))
        await service.snapshot.write_again()
        assert (await asking).status_code == 200
