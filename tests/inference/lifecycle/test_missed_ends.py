"""An end that does not come is fetched: from Redis, where `finish` left it, or from its worker, for
as long as that one may still send it."""

import json
from typing import Any

import pytest
from httpx import Response
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Outcome
from inference.lifecycle import missed_ends
from inference.streaming import reorder_buffer
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.scripted_worker import Run, ScriptedWorker
from tests.support.gateways.service import Service
from tests.support.polling import eventually

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Count."}]}
STREAM = ASK | {"stream": True}


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missed_ends, "IDLE_SECONDS", 0.05)


def words(answer: Response) -> list[str]:
    lines = answer.text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return [event["choices"][0]["delta"]["content"] for event in events if "choices" in event]


async def test_an_end_is_read_from_redis_where_its_worker_says_nothing_more(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    """Stopped between `finish` and the flush, with part of the output still to be written."""

    async def stop_after_finish(run: Run) -> None:
        await run.say("One")
        unsent = [run.delta(" two"), run.delta(" three")]
        await run.finish(last_frames=[*unsent, run.terminal(Outcome.COMPLETED)])

    worker.script = stop_after_finish
    await worker.start()
    async with service.client() as client:
        answer = await client.post(CHAT, json=STREAM)
    assert words(answer) == ["One", " two", " three"]
    assert answer.text.endswith("data: [DONE]\n\n")
    assert worker.demands == [], "nobody had to be asked"
    [record] = await worker.records()
    kept = keys.pool_last_frames(POOL, record.request_id)
    await eventually(lambda: _is_gone(dispatch_redis, kept))


async def _is_gone(redis: Redis, key: str) -> bool:
    return not await redis.exists(key)


async def test_what_is_kept_of_an_end_goes_once_the_end_has_come(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    async def end_and_keep(run: Run) -> None:
        said = run.delta("One")
        terminal = run.terminal(Outcome.COMPLETED)
        await run.finish(last_frames=[said, terminal])
        await run.push(said, terminal)

    worker.script = end_and_keep
    await worker.start()
    async with service.client() as client:
        assert words(await client.post(CHAT, json=STREAM)) == ["One"]
    [record] = await worker.records()
    kept = keys.pool_last_frames(POOL, record.request_id)
    await eventually(lambda: _is_gone(dispatch_redis, kept))


async def test_a_body_that_is_kept_is_read_from_redis(
    service: Service, worker: ScriptedWorker
) -> None:
    async def keep_the_body(run: Run) -> None:
        run.tokens = 3
        whole = run.terminal(Outcome.COMPLETED, body=run.answer("One two three"))
        await run.finish(last_frames=[whole])
        run.seq -= 1
        await run.push(run.terminal(Outcome.COMPLETED, is_body_kept=True))

    worker.script = keep_the_body
    await worker.start()
    async with service.client() as client:
        answer = await client.post(CHAT, json=ASK)
    assert answer.json()["choices"][0]["message"]["content"] == "One two three"


async def test_a_body_that_redis_has_lost_is_asked_of_its_worker(
    service: Service, worker: ScriptedWorker
) -> None:
    async def resend_the_body(run: Run) -> None:
        run.tokens = 3
        await run.finish()
        await run.push(run.terminal(Outcome.COMPLETED, is_body_kept=True))
        run.seq -= 1
        await eventually(lambda: worker.demands)
        await run.push(run.terminal(Outcome.COMPLETED, body=run.answer("One two three")))

    worker.script = resend_the_body
    await worker.start()
    async with service.client() as client:
        answer = await client.post(CHAT, json=ASK)
    assert answer.json()["choices"][0]["message"]["content"] == "One two three"


async def test_nobody_gives_up_while_the_worker_holds_its_lease(
    service: Service, worker: ScriptedWorker
) -> None:
    """It is busy, or paused, and Redis has nothing of the end."""

    async def be_late(run: Run) -> None:
        await run.say("One")
        await run.finish()
        await eventually(lambda: len(worker.demands) >= 3, timeout_seconds=10)
        await run.push(run.delta(" two"), run.terminal(Outcome.COMPLETED))

    worker.script = be_late
    await worker.start()
    async with service.client() as client:
        answer = await client.post(CHAT, json=STREAM)
    assert words(answer) == ["One", " two"]
    assert answer.text.endswith("data: [DONE]\n\n")
    assert {(each.attempt, each.from_seq) for each in worker.demands} == {(1, 1)}


@pytest.mark.parametrize("stream", [STREAM, ASK])
async def test_an_end_that_cannot_come_any_more_is_told_and_paid_as_recorded(
    stream: dict[str, Any], service: Service, worker: ScriptedWorker
) -> None:
    """Its worker's lease has ended, and Redis has nothing."""

    async def finish_and_die(run: Run) -> None:
        if run.envelope.stream:
            await run.say("One")
        await run.finish()
        await worker.lose_its_lease()

    worker.script = finish_and_die
    await worker.start()
    async with service.client() as client:
        answer = await client.post(CHAT, json=stream)
    assert '"worker_lost"' in answer.text
    assert "[DONE]" not in answer.text


async def test_an_end_that_its_worker_keeps_no_longer_is_given_up_at_once(
    service: Service, worker: ScriptedWorker
) -> None:
    async def keep_nothing(run: Run) -> None:
        await run.say("One")
        await run.finish()
        await eventually(lambda: worker.demands)
        await run.say_unkept(worker.demands[0])

    worker.script = keep_nothing
    await worker.start()
    async with service.client() as client:
        answer = await client.post(CHAT, json=STREAM)
    assert '"worker_lost"' in answer.text
    assert len(worker.demands) <= 2


async def test_a_gap_is_asked_for_again_as_long_as_nobody_answers(
    service: Service, worker: ScriptedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that is paused gives its answer late, not never."""
    monkeypatch.setattr(reorder_buffer, "ASK_AGAIN_SECONDS", 0.05)

    async def answer_late(run: Run) -> None:
        await run.say("One")
        lost = run.delta(" two")
        await run.say(" three")
        await eventually(lambda: len(worker.demands) >= 3)
        await run.push(lost)
        await run.end()

    worker.script = answer_late
    await worker.start()
    async with service.client() as client:
        answer = await client.post(CHAT, json=STREAM | {"stop": "ten"})
    assert words(answer) == ["One", " two", " three"]


async def test_workers_are_told_which_batches_have_come(
    service: Service, worker: ScriptedWorker
) -> None:
    async def number_the_batches(run: Run) -> None:
        for number, word in enumerate(("One", " two"), start=7):
            await run.push(run.delta(word), number=number)
        await eventually(lambda: worker.confirmed)
        await run.end()

    worker.script = number_the_batches
    await worker.start()
    async with service.client() as client:
        assert words(await client.post(CHAT, json=STREAM)) == ["One", " two"]
    assert worker.confirmed[-1] == 8
