"""A worker that dies is replaced: unseen before the first token, later where that is sound."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any

import pytest
from msgspec import structs
from redis.asyncio import Redis

from gpu_workers.protocol import functions, keys
from gpu_workers.protocol.calls import requeue_arguments
from gpu_workers.protocol.messages import Outcome
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.scripted_worker import Run, ScriptedWorker, count_to_three
from tests.support.gateways.service import Service
from tests.support.polling import eventually

CHAT = "/v1/chat/completions"
ASKS = {"model": MODEL, "messages": [{"role": "user", "content": "Count."}]}
STREAMS = ASKS | {"stream": True}


@pytest.fixture
async def second(worker_redis_url: Callable[[str], str]) -> AsyncIterator[ScriptedWorker]:
    worker = ScriptedWorker(worker_redis_url(POOL), go_on, worker_id="second#1")
    yield worker
    await worker.stop()


async def go_on(run: Run) -> None:
    """Counts to three, from wherever an earlier attempt got to."""
    words = ["One", " two", " three"]
    known = len(run.envelope.resumed_token_ids)
    if not run.envelope.stream or not known:
        await count_to_three(run)
        return
    await run.say_again("".join(words[:known]))
    for word in words[known:]:
        await run.say(word)
    await run.end()


async def say_one(run: Run) -> None:
    await run.say("One")
    await run.cancelled.wait()


async def be_silent(run: Run) -> None:
    await run.cancelled.wait()


def text_of(events: str) -> str:
    chunks = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)


def _has_run(worker: ScriptedWorker) -> bool:
    return bool(worker.runs)


async def is_settled(redis: Redis) -> bool:
    return await redis.hlen(keys.tenant_reservations("acme")) == 0


@pytest.mark.parametrize("body", [ASKS, STREAMS, STREAMS | {"stop": "ten"}])
async def test_before_its_first_token_a_request_begins_anew_unseen(
    body: dict[str, Any], service: Service, worker: ScriptedWorker, second: ScriptedWorker
) -> None:
    worker.script = be_silent
    await worker.start()
    async with service.client() as client:
        asked = asyncio.create_task(client.post(CHAT, json=body))
        await eventually(lambda: worker.runs)
        await worker.die()
        await second.start()
        response = await asked
    assert response.status_code == 200
    assert "One two three" in (text_of(response.text) if "stream" in body else response.text)
    [record] = await second.records()
    assert (record.attempt, record.worker_id) == (2, "second#1")


async def test_after_its_first_token_a_stream_goes_on_where_it_was(
    service: Service, worker: ScriptedWorker, second: ScriptedWorker, dispatch_redis: Redis
) -> None:
    worker.script = say_one
    await worker.start()
    async with service.client() as client, client.stream("POST", CHAT, json=STREAMS) as answer:
        parts = answer.aiter_text()
        begun = await anext(parts)
        await worker.die()
        await second.start()
        rest = "".join([part async for part in parts])
    assert text_of(begun) == "One"
    assert text_of(rest) == " two three"
    assert rest.endswith("data: [DONE]\n\n")
    [run] = second.runs.values()
    assert run.envelope.resumed_token_ids == [0]
    [record] = await second.records()
    assert record.outcome is Outcome.COMPLETED
    assert record.usage.completion_tokens == 3
    await eventually(lambda: is_settled(dispatch_redis))


async def test_no_stream_goes_on_in_a_pool_whose_engines_cannot(
    service: Service, worker: ScriptedWorker
) -> None:
    worker.script = say_one
    await worker.start(can_resume=False)
    async with service.client() as client, client.stream("POST", CHAT, json=STREAMS) as answer:
        parts = answer.aiter_text()
        await anext(parts)
        await worker.die()
        rest = "".join([part async for part in parts])
    assert '"worker_lost"' in rest


async def test_what_a_replaced_worker_still_says_is_not_delivered(
    service: Service, worker: ScriptedWorker, second: ScriptedWorker
) -> None:
    """As after a pause: it was taken for dead and is not."""
    worker.script = say_one
    second.script = be_silent
    await worker.start()
    async with service.client() as client, client.stream("POST", CHAT, json=STREAMS) as answer:
        parts = answer.aiter_text()
        begun = await anext(parts)
        await worker.die()
        await second.start()
        await eventually(lambda: second.runs)
        [late], [run] = worker.runs.values(), second.runs.values()
        await late.say(" too", " late")
        assert not await late.end()
        await go_on(run)
        rest = "".join([part async for part in parts])
    assert text_of(begun) + text_of(rest) == "One two three"


async def test_the_third_worker_that_dies_with_a_request_is_the_last(
    service: Service,
    worker: ScriptedWorker,
    worker_redis_url: Callable[[str], str],
    dispatch_redis: Redis,
) -> None:
    async with service.client() as client:
        asked = asyncio.create_task(client.post(CHAT, json=STREAMS))
        for number in range(1, 4):
            poisoned = ScriptedWorker(
                worker_redis_url(POOL), be_silent, worker_id=f"poisoned-{number}#1"
            )
            await poisoned.start()
            await eventually(partial(_has_run, poisoned))
            await poisoned.die()
            await poisoned.stop()
        response = await asked
    assert response.status_code == 502
    assert response.json()["error"]["code"] == "attempts_exhausted"
    [record] = await worker.records()
    assert (record.attempt, record.error_code) == (3, "attempts_exhausted")
    assert await dispatch_redis.xlen(keys.pool_dead_letters(POOL)) == 1


async def test_a_client_that_left_is_not_served_again(
    service: Service, worker: ScriptedWorker, second: ScriptedWorker, dispatch_redis: Redis
) -> None:
    worker.script = say_one
    await worker.start()
    async with service.client() as client, client.stream("POST", CHAT, json=STREAMS) as answer:
        await anext(answer.aiter_text())
    await eventually(lambda: worker.cancelled)
    await worker.die()
    await second.start()
    [record] = await eventually(worker.records)
    assert record.outcome is Outcome.CANCELLED
    assert record.usage.completion_tokens == 1
    assert not second.runs
    await eventually(lambda: is_settled(dispatch_redis))


async def test_what_nobody_goes_on_from_is_wasted_where_it_was_not_delivered(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    """A worker gives a silent request back with what it has generated; then its client leaves."""
    worker.script = be_silent
    await worker.start()
    async with service.client() as client:
        asked = asyncio.create_task(client.post(CHAT, json=ASKS))
        [run] = await eventually(lambda: list(worker.runs.values()))
        again = structs.replace(run.envelope, resumed_token_ids=[0, 1])
        arguments = requeue_arguments(again.request_id, 1, "worker_lost", again)
        prefix = keys.pool_prefix(POOL)
        answer = await dispatch_redis.fcall(functions.REQUEUE, 1, prefix, *arguments)
        assert answer[0] == b"requeued"
        asked.cancel()
        [record] = await eventually(worker.records)
    assert (record.attempt, record.outcome) == (0, Outcome.CANCELLED)
    assert (record.usage.completion_tokens, record.generated_tokens) == (0, 0)
    assert (record.wasted_tokens, record.waste_reason) == (2, "not_resumed")


async def test_a_stream_that_nobody_goes_on_with_in_time_ends_typed(
    impatient_service: Service, worker: ScriptedWorker
) -> None:
    worker.script = say_one
    await worker.start()
    async with (
        impatient_service.client() as client,
        client.stream("POST", CHAT, json=STREAMS) as answer,
    ):
        parts = answer.aiter_text()
        await anext(parts)
        await worker.die()
        rest = "".join([part async for part in parts])
    assert '"worker_lost"' in rest
    [record] = await worker.records()
    assert record.outcome is Outcome.FAILED
    assert record.usage.completion_tokens == 1


async def test_a_redis_that_does_not_answer_loses_no_output(
    service: Service,
    worker: ScriptedWorker,
    second: ScriptedWorker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dispatch = service.gateway.completions.dispatch
    requeue, attempts = dispatch.requeue, 0

    async def heard_at_last(*arguments: Any, **options: Any) -> Any:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise OSError("away")
        return await requeue(*arguments, **options)

    monkeypatch.setattr(dispatch, "requeue", heard_at_last)
    worker.script = say_one
    await worker.start()
    async with service.client() as client:
        asked = asyncio.create_task(client.post(CHAT, json=STREAMS))
        await eventually(lambda: worker.runs)
        await worker.die()
        await second.start()
        response = await asked
    assert text_of(response.text) == "One two three"
