"""Promoted and rolled back while two gateways answer; `make chaos` does it with 20,000 requests."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from inference.lifecycle.completions import GatewaySettings
from tests.support.gateways.cast import POOL
from tests.support.gateways.scripted_worker import WORDS, Run, ScriptedWorker, count_to_three
from tests.support.gateways.service import Service, Snapshot, a_service
from tests.support.polling import eventually

ADAPTER = "acme/support"
OLD, NEW = f"{ADAPTER}@1", f"{ADAPTER}@2"
ASK: dict[str, Any] = {
    "model": ADAPTER,
    "messages": [{"role": "user", "content": "Count."}],
    "max_tokens": 10,
}


@pytest.fixture
async def gateways(
    gateway_settings: GatewaySettings,
    service: Service,
    snapshot: Snapshot,
    worker: ScriptedWorker,
    dispatch_redis: Redis,
) -> AsyncIterator[list[Service]]:
    """Two, over one worker that runs any adapter; both know two versions of Acme's."""
    await snapshot.put_adapter(ADAPTER, {1: 1000, 2: 0})
    await worker.start()
    await dispatch_redis.hset(keys.pool_worker_adapters(POOL, worker.worker_id), "slots", 16)
    async with a_service(gateway_settings, snapshot) as second:
        both = [service, second]
        for each in both:
            await eventually(lambda each=each: answers(each))  # type: ignore[misc]
        yield both


async def answers(service: Service) -> bool:
    return (await ask(service))[0] == 200


async def ask(service: Service, **more: Any) -> tuple[int, str, str]:
    """The status, the version and the request id that the client is told."""
    async with service.client() as client:
        answer = await client.post("/v1/chat/completions", json=ASK | more)
    told = (answer.headers.get(name, "") for name in ("x-penstock-adapter", "x-request-id"))
    return answer.status_code, *told


async def test_promoted_and_rolled_back_both_follow_within_a_second_and_no_request_fails(
    gateways: list[Service], worker: ScriptedWorker
) -> None:
    asked: list[tuple[float, int, int, str, str]] = []
    is_over = asyncio.Event()

    async def keep_asking(number: int) -> None:
        while not is_over.is_set():
            at = time.monotonic()
            asked.append((at, number, *(await ask(gateways[number]))))

    def has_only(version: str, since: float) -> bool:
        late = [each for each in asked if each[0] > since]
        return len({each[1] for each in late}) == 2 and {each[3] for each in late[-8:]} == {version}

    async with asyncio.TaskGroup() as clients:
        for number in (0, 1, 0, 1):
            clients.create_task(keep_asking(number))
        for shares, before, now in (
            ({1: 0, 2: 1000}, OLD, NEW),
            ({1: 1000, 2: 0}, NEW, OLD),
        ):
            pointed_at = time.monotonic()
            await gateways[0].snapshot.put_adapter(ADAPTER, shares)
            await eventually(lambda: has_only(now, pointed_at))  # noqa: B023
            late = [each[0] - pointed_at for each in asked if each[3] == before]
            assert max(late) < 1.0
        is_over.set()
    assert {each[2] for each in asked} == {200}
    recorded = {
        each.request_id: f"{each.adapter}@{each.adapter_version}" for each in await worker.records()
    }
    assert all(recorded[request_id] == version for *_, version, request_id in asked)


async def test_a_stream_stays_with_its_version_when_another_is_promoted(
    gateways: list[Service], worker: ScriptedWorker
) -> None:
    goes_on = asyncio.Event()

    async def wait_after_one(run: Run) -> None:
        if not run.envelope.stream:
            await count_to_three(run)
            return
        await run.say(WORDS[0])
        await goes_on.wait()
        await run.say(*WORDS[1:])
        await run.end()

    worker.script = wait_after_one
    async with (
        gateways[0].client() as client,
        client.stream("POST", "/v1/chat/completions", json=ASK | {"stream": True}) as answer,
    ):
        assert answer.headers["x-penstock-adapter"] == OLD
        await gateways[0].snapshot.put_adapter(ADAPTER, {1: 0, 2: 1000})

        async def is_promoted() -> bool:
            return {(await ask(each))[1] for each in gateways} == {NEW}

        await eventually(is_promoted)
        goes_on.set()
        text = (await answer.aread()).decode()
    assert all(word in text for word in WORDS)
    request_id = answer.headers["x-request-id"]
    (record,) = [each for each in await worker.records() if each.request_id == request_id]
    assert (record.adapter, record.adapter_version) == (ADAPTER, 1)


async def test_people_get_the_same_version_from_both(gateways: list[Service]) -> None:
    await gateways[0].snapshot.put_adapter(ADAPTER, {1: 500, 2: 500})

    async def is_split() -> bool:
        seen = {(await ask(each))[1] for each in gateways for _ in range(2)}
        return seen == {OLD, NEW}

    await eventually(is_split)
    people = [f"person-{number}" for number in range(16)]
    first, second = [
        await asyncio.gather(*(ask(gateway, user=person) for person in people))
        for gateway in gateways
    ]
    assert [told[1] for told in first] == [told[1] for told in second]
    assert {told[1] for told in first} == {OLD, NEW}
