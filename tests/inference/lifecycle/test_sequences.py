"""What a request with several choices or prompts is admitted to, and what is too wide."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Outcome, WorkerState
from gpu_workers.protocol.policy import OnSaturation
from tests.support.gateways.cast import MODEL
from tests.support.gateways.scripted_worker import Run, ScriptedWorker, count_to_three
from tests.support.gateways.service import Service, a_tier
from tests.support.gateways.websocket import ask, connected, receive
from tests.support.polling import eventually

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ASK: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Count."}]}
CONTINUE: dict[str, Any] = {"model": MODEL, "prompt": ["One", "Two", "Three"]}
SMALL, SMALL_POOL = "small", "pool-of-small"


@pytest.fixture
async def small_worker(worker_redis_url: Callable[[str], str]) -> AsyncIterator[ScriptedWorker]:
    worker = ScriptedWorker(worker_redis_url(SMALL_POOL), pool=SMALL_POOL)
    yield worker
    await worker.stop()


@pytest.mark.parametrize(
    ("path", "body", "sequences"),
    [(CHAT, ASK, 1), (CHAT, ASK | {"n": 4}, 4), (COMPLETIONS, CONTINUE | {"n": 2}, 6)],
)
async def test_each_choice_of_each_prompt_is_a_sequence(
    service: Service, worker: ScriptedWorker, path: str, body: dict[str, Any], sequences: int
) -> None:
    await worker.start(slots=6)
    async with service.client() as client:
        assert (await client.post(path, json=body)).status_code == 200
    [run] = worker.runs.values()
    assert run.envelope.sequences == sequences


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [(CHAT, ASK | {"n": 5}, "n"), (COMPLETIONS, CONTINUE | {"n": 2}, "prompt")],
)
async def test_more_sequences_than_any_worker_has_slots_are_refused_and_reserve_nothing(
    service: Service,
    worker: ScriptedWorker,
    dispatch_redis: Redis,
    path: str,
    body: dict[str, Any],
    param: str,
) -> None:
    await worker.start(slots=4)
    async with service.client() as client:
        answer = await client.post(path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "too_many_choices", param)
    assert "4" in error["message"]
    assert not [key async for key in dispatch_redis.scan_iter(f"{keys.tenant_prefix('acme')}*")]


async def test_a_websocket_is_refused_in_the_same_way_and_lives(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start(slots=4)
    async with connected(service, key=service.alice) as socket:
        await ask(socket, "wide", body=ASK | {"n": 5})
        refused = await receive(socket)
        assert (refused["type"], refused["id"]) == ("error", "wide")
        assert refused["error"]["code"] == "too_many_choices"
        await ask(socket, "plain")
        assert (await receive(socket))["type"] == "chunk"


@pytest.mark.parametrize("state", [None, WorkerState.STARTING])
async def test_nothing_is_too_wide_while_no_worker_has_said_what_it_has(
    impatient_service: Service, worker: ScriptedWorker, state: WorkerState | None
) -> None:
    if state is not None:
        await worker.start(slots=0, state=state)
    async with impatient_service.client() as client:
        answer = await client.post(CHAT, json=ASK | {"n": 16})
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_timeout")


async def test_a_smaller_model_whose_workers_have_too_few_slots_does_not_answer(
    service: Service, worker: ScriptedWorker, small_worker: ScriptedWorker
) -> None:
    await service.snapshot.add_model(SMALL, pool=SMALL_POOL)
    key = await service.snapshot.add_key(
        "Acme",
        tier=a_tier(ttft_target_ms=1000),
        on_saturation=OnSaturation.SMALLER_MODEL,
        smaller_model=SMALL,
    )
    is_over = asyncio.Event()

    async def hold(run: Run) -> None:
        await is_over.wait()
        await count_to_three(run)

    worker.script = hold
    await worker.start(slots=4)
    await small_worker.start(slots=2)
    await worker.redis.hset(keys.pool_scheduler(worker.pool), "held_ms", 60_000)
    async with service.client(service.bob) as bob, service.client(key) as client:
        held = asyncio.create_task(bob.post(CHAT, json=ASK | {"n": 4}))
        await eventually(lambda: worker.runs)
        answer = await client.post(CHAT, json=ASK | {"n": 3})
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "saturated")
        assert (await client.post(CHAT, json=ASK | {"n": 2})).json()["model"] == SMALL
        is_over.set()
        assert (await held).status_code == 200


async def test_the_sequences_of_open_requests_count_at_once(
    service: Service, worker: ScriptedWorker
) -> None:
    async def wait_for_the_end(run: Run) -> None:
        await run.cancelled.wait()
        await run.end(Outcome.CANCELLED)

    worker.script = wait_for_the_end
    await worker.start()
    key = await service.snapshot.add_key("Acme", tier=a_tier(max_concurrent_requests=8))
    async with service.client(key) as client:
        never = await client.post(CHAT, json=ASK | {"n": 9})
        assert (never.status_code, never.json()["error"]["code"]) == (429, "request_exceeds_limit")
        assert never.headers["x-should-retry"] == "false"
        held = asyncio.create_task(client.post(CHAT, json=ASK | {"n": 7}))
        await eventually(lambda: worker.runs)
        refused = await client.post(CHAT, json=ASK | {"n": 2})
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (429, "concurrent_requests_exceeded")
        assert (error["penstock"]["used"], error["penstock"]["limit_value"]) == (7, 8)
        shown = {each["limit"]: each for each in (await client.get("/v1/limits")).json()["data"]}
        assert shown["concurrent_requests"]["used"] == 7
        assert shown["concurrent_requests"]["unit"] == "sequences"
        held.cancel()
        await asyncio.gather(held, return_exceptions=True)

        async def is_free() -> bool:
            data = (await client.get("/v1/limits")).json()["data"]
            used = {each["limit"]: each["used"] for each in data}
            return bool(used["concurrent_requests"] == 0)

        await eventually(is_free)
