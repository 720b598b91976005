"""A worker process that is stopped or killed at any step between the last token and the end: no
stream is shorter than its record."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import codec, functions, keys
from gpu_workers.protocol.messages import Frame, Outcome, Terminal
from gpu_workers.protocol.usage import UsageEntry
from inference.lifecycle import missed_ends
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.processes import a_sim_worker
from tests.support.gateways.service import Service, a_tier
from tests.support.polling import eventually
from tests.support.workers.redis_proxy import (
    Command,
    Interruption,
    RedisProxy,
    When,
    a_redis_proxy,
)

pytestmark = pytest.mark.stack

TOKENS = 10
STREAMS = 4
ASK = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Talk."}],
    "stream": True,
    "max_tokens": TOKENS,
    "ignore_eos": True,
}
# No other worker can go on with it.
ALONE = ASK | {"stop": "never"}


def frames_of(command: Command) -> list[Frame]:
    """What a write to a gateway holds; nothing of any other command."""
    if command[0].upper() != b"RPUSH" or b"}:frames:" not in command[1]:
        return []
    return codec.decode_frames(command[2]).frames


def writes_last_tokens(command: Command) -> bool:
    frames = frames_of(command)
    return any(
        not isinstance(each, Terminal) and each.completion_tokens == TOKENS for each in frames
    )


def finishes(command: Command) -> bool:
    return command[:2] == [b"FCALL", functions.FINISH.encode()]


def writes_an_end(command: Command) -> bool:
    return any(type(each) is Terminal for each in frames_of(command))


STEPS = [writes_last_tokens, finishes, writes_an_end]


@dataclass(frozen=True, kw_only=True)
class Answer:
    request_id: str
    words: int
    is_complete: bool


async def ask(client: httpx.AsyncClient, body: dict[str, object]) -> Answer:
    response = await client.post("/v1/chat/completions", json=body, timeout=60)
    lines = response.text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    deltas = [event["choices"][0]["delta"] for event in events if event.get("choices")]
    return Answer(
        request_id=response.headers["x-request-id"],
        words=sum(bool(delta.get("content")) for delta in deltas),
        is_complete=response.text.endswith("data: [DONE]\n\n"),
    )


async def records(redis: Redis) -> dict[str, UsageEntry]:
    entries: Any = await redis.xrange(keys.pool_usage(POOL))
    found = [codec.decode_usage_entry(row[b"record"]) for _, row in entries if b"record" in row]
    assert len(found) == len({each.request_id for each in found}), "recorded once"
    return {each.request_id: each for each in found}


@pytest.fixture
async def proxy(worker_redis_url: Callable[[str], str]) -> AsyncIterator[RedisProxy]:
    async with a_redis_proxy(worker_redis_url(POOL)) as proxy:
        yield proxy


@pytest.fixture
async def client(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[httpx.AsyncClient]:
    """Alice's, whose tier has no limit that so many requests meet. Missed ends are looked for at
    once."""
    monkeypatch.setattr(missed_ends, "IDLE_SECONDS", 0.2)
    tier = a_tier(requests_per_minute=1_000_000)
    await service.snapshot.put_tenant("Acme", tier=tier)
    async with service.client() as client:
        yield client


async def wait_for_recorded(redis: Redis, answers: "list[asyncio.Task[Answer]]") -> None:
    """Until every client has the end of what is on record."""

    async def all_have_ended() -> bool:
        ended = {each.result().request_id for each in answers if each.done()}
        return set(await records(redis)) <= ended

    await eventually(all_have_ended, 20)


def assert_nothing_is_short(answers: list[Answer], recorded: dict[str, UsageEntry]) -> None:
    for answer in answers:
        record = recorded[answer.request_id]
        assert record.outcome is Outcome.COMPLETED
        assert answer.words == record.usage.completion_tokens == TOKENS
        assert answer.is_complete


@pytest.mark.parametrize("rounds", [2, pytest.param(34, marks=pytest.mark.rare)])
@pytest.mark.parametrize("when", [pytest.param("before", marks=pytest.mark.rare), "after"])
@pytest.mark.parametrize("step", STEPS)
async def test_a_worker_that_is_stopped_shortens_no_stream(
    step: Callable[[Command], bool],
    when: When,
    rounds: int,
    client: httpx.AsyncClient,
    proxy: RedisProxy,
    dispatch_redis: Redis,
) -> None:
    """What is on record by then ends while it is stopped, all else when it goes on."""
    async with a_sim_worker(proxy.url, PENSTOCK_SIM_STEP_MS="5") as process:
        stop = partial(os.killpg, process.pid, signal.SIGSTOP)
        answers: list[asyncio.Task[Answer]] = []
        for _ in range(rounds):
            stopped = Interruption(is_it=step, when=when, at_it=stop)
            proxy.interrupt(stopped)
            asked = [asyncio.create_task(ask(client, ALONE)) for _ in range(STREAMS)]
            await asyncio.wait_for(stopped.has_come.wait(), 20)
            answers += asked
            await wait_for_recorded(dispatch_redis, answers)
            os.killpg(process.pid, signal.SIGCONT)
            stopped.release()
            assert_nothing_is_short(await asyncio.gather(*asked), await records(dispatch_redis))


@pytest.mark.parametrize("end", [signal.SIGSTOP, signal.SIGKILL])
async def test_last_tokens_that_were_not_written_when_their_request_was_finished_are_not_lost(
    end: signal.Signals, client: httpx.AsyncClient, proxy: RedisProxy, dispatch_redis: Redis
) -> None:
    async with a_sim_worker(proxy.url, PENSTOCK_SIM_STEP_MS="5") as process:
        # They go no further than this, or still wait in the worker for the pace of its writes.
        held = Interruption(is_it=writes_last_tokens, when="before", at_it=lambda: None)
        stop = partial(os.killpg, process.pid, end)
        stopped = Interruption(is_it=finishes, when="after", at_it=stop)
        proxy.interrupt(held, stopped)
        asked = asyncio.create_task(ask(client, ALONE))
        await asyncio.wait_for(stopped.has_come.wait(), 20)
        answer = await asked
    assert_nothing_is_short([answer], await records(dispatch_redis))


@pytest.mark.parametrize("when", ["before", pytest.param("after", marks=pytest.mark.rare)])
@pytest.mark.parametrize("step", STEPS)
async def test_a_worker_that_is_killed_shortens_no_stream_that_is_on_record(
    step: Callable[[Command], bool],
    when: When,
    client: httpx.AsyncClient,
    proxy: RedisProxy,
    worker_redis_url: Callable[[str], str],
    dispatch_redis: Redis,
) -> None:
    """kill -9; what is not on record yet, another worker goes on with."""
    async with a_sim_worker(proxy.url, PENSTOCK_SIM_STEP_MS="5") as process:
        kill = partial(os.killpg, process.pid, signal.SIGKILL)
        killed = Interruption(is_it=step, when=when, at_it=kill)
        proxy.interrupt(killed)
        asked = [asyncio.create_task(ask(client, ASK)) for _ in range(STREAMS)]
        await asyncio.wait_for(killed.has_come.wait(), 20)
        await wait_for_recorded(dispatch_redis, asked)
        await process.wait()
        async with a_sim_worker(worker_redis_url(POOL)):
            answers = await asyncio.gather(*asked)
    assert_nothing_is_short(answers, await records(dispatch_redis))


async def test_a_worker_that_is_paused_beyond_its_lease_shortens_no_stream(
    client: httpx.AsyncClient,
    proxy: RedisProxy,
    worker_redis_url: Callable[[str], str],
    dispatch_redis: Redis,
) -> None:
    """Its requests end elsewhere, and it finds them ended when it goes on."""
    async with a_sim_worker(proxy.url, PENSTOCK_SIM_STEP_MS="5") as process:
        stop = partial(os.killpg, process.pid, signal.SIGSTOP)
        stopped = Interruption(is_it=finishes, when="before", at_it=stop)
        proxy.interrupt(stopped)
        asked = [asyncio.create_task(ask(client, ASK)) for _ in range(STREAMS)]
        await asyncio.wait_for(stopped.has_come.wait(), 20)
        beats: Any = await dispatch_redis.zrange(keys.pool_heartbeats(POOL), 0, -1)
        await dispatch_redis.zadd(keys.pool_heartbeats(POOL), dict.fromkeys(beats, 1))
        async with a_sim_worker(worker_redis_url(POOL), "another"):
            answers = await asyncio.gather(*asked)
            os.killpg(process.pid, signal.SIGCONT)
            stopped.release()
            again = await asyncio.gather(*(ask(client, ASK) for _ in range(STREAMS)))
    assert_nothing_is_short([*answers, *again], await records(dispatch_redis))
