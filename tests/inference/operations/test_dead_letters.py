"""What every worker died with, as operators see it, run it once more and throw it away."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec import structs
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Envelope, Outcome, Requeued, WireError
from inference.dispatch.queue import Dispatch, usage_entry
from inference.lua_constants import DEAD_LETTER_MS
from inference.operations.dead_letters import forget_old
from tests.support import commands
from tests.support.gateways.cast import POOL, an_envelope
from tests.support.gateways.scripted_worker import Run, ScriptedWorker, count_to_three
from tests.support.polling import eventually

SECRET = "What only Alice knows"


@pytest.fixture
async def letter(
    dispatch_redis: Redis, worker_redis_url: Callable[[str], str], settings: Any,
    dispatch_redis_url: str,
) -> AsyncIterator[Envelope]:  # fmt: skip
    """A request of Alice that three workers died with."""
    settings.PENSTOCK_DISPATCH_REDIS_URL = dispatch_redis_url
    await dispatch_redis.sadd(keys.known_pools(), POOL)
    envelope = structs.replace(an_envelope(), body=json.dumps({"prompt": SECRET}).encode())
    dispatch = Dispatch(dispatch_redis)
    await dispatch.enqueue(envelope, max_queue_length=8)
    answer = None
    for number in range(1, 4):
        worker = ScriptedWorker(worker_redis_url(POOL), _nothing, worker_id=f"dead-{number}#1")
        await worker.start()
        assert list(worker.runs) == [envelope.request_id]
        await worker.die()
        await worker.stop()
        answer = await dispatch.requeue(POOL, envelope.request_id, number)
    assert answer is Requeued.EXHAUSTED
    entry = usage_entry(
        envelope, attempt=3, outcome=Outcome.FAILED, error_code="attempts_exhausted"
    )
    assert await dispatch.finish(entry, is_dead_letter=True)
    yield envelope


async def _nothing(run: Run) -> None: ...


async def run(*arguments: str) -> Any:
    return await asyncio.to_thread(commands.run, "dead_letters", *arguments)


async def refused(*arguments: str) -> str:
    return await asyncio.to_thread(commands.refused, "dead_letters", *arguments)


async def test_a_dead_letter_is_listed_and_shown_without_its_prompt(letter: Envelope) -> None:
    [row] = await run("list")
    assert (row["request_id"], row["attempts"]) == (letter.request_id, 3)
    shown = await run("show", letter.request_id)
    assert shown["error_code"] == "attempts_exhausted"
    assert shown["body_bytes"] == len(letter.body)
    assert SECRET not in json.dumps(shown)


async def test_run_once_more_it_ends_well_unbilled_and_is_gone(
    letter: Envelope, worker: ScriptedWorker
) -> None:
    worker.script = count_to_three
    await worker.start()
    told = await run("retry", letter.request_id)
    assert (told["outcome"], told["completion_tokens"]) == ("completed", 3)
    [again] = worker.runs.values()
    assert again.envelope.body == letter.body
    assert again.envelope.request_id != letter.request_id
    assert [record.is_billed for record in await worker.records()] == [True, False]
    assert await run("list") == []


async def test_a_retry_that_fails_says_how_and_keeps_the_letter(
    letter: Envelope, worker: ScriptedWorker
) -> None:
    async def refuse(run: Run) -> None:
        error = WireError(status=400, message="No.", type="invalid_request_error", code="bad")
        await run.end(Outcome.REFUSED, error=error)

    worker.script = refuse
    await worker.start()
    told = await run("retry", letter.request_id)
    assert (told["outcome"], told["error_code"], told["discarded"]) == ("refused", "bad", False)
    assert len(await run("list")) == 1


async def test_a_retry_whose_worker_dies_goes_to_the_next(
    letter: Envelope, worker: ScriptedWorker, worker_redis_url: Callable[[str], str]
) -> None:
    another = ScriptedWorker(worker_redis_url(POOL), worker_id="another#1")
    worker.script = _nothing
    await worker.start()
    retrying = asyncio.create_task(run("retry", letter.request_id))
    await eventually(lambda: worker.runs)
    await worker.die()
    await another.start()
    try:
        assert (await retrying)["outcome"] == "completed"
    finally:
        await another.stop()


async def test_a_dead_letter_is_discarded_with_its_payload(
    letter: Envelope, dispatch_redis: Redis
) -> None:
    assert (await run("discard", letter.request_id))["discarded"] is True
    assert await dispatch_redis.xlen(keys.pool_dead_letters(POOL)) == 0
    assert "dead letter" in await refused("show", letter.request_id)


async def test_what_is_asked_wrongly_is_one_sentence(letter: Envelope) -> None:
    assert "takes the id of a request" in await refused("retry")
    assert "takes no id" in await refused("list", letter.request_id)


async def test_a_payload_is_kept_for_a_day_whether_or_not_another_one_comes(
    letter: Envelope, dispatch_redis: Redis, dispatch_redis_url: str
) -> None:
    key = keys.pool_dead_letters(POOL)
    assert 0 < await dispatch_redis.pttl(key) <= DEAD_LETTER_MS
    rows: Any = await dispatch_redis.xrange(key)
    [(_, fields)] = rows
    seconds, _ = await dispatch_redis.time()
    await dispatch_redis.delete(key)
    for age_ms in (DEAD_LETTER_MS + 1000, 1000):
        await dispatch_redis.xadd(key, fields, id=f"{seconds * 1000 - age_ms}-0")
    await dispatch_redis.expire(key, 600)
    with SyncRedis.from_url(dispatch_redis_url) as redis:
        forget_old(redis)
    assert await dispatch_redis.xlen(key) == 1
