"""The gateway and a whole simulated worker process: the path, a disconnect, and a kill -9."""

import asyncio
import json
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Outcome, TokenUsage
from gpu_workers.protocol.usage import UsageEntry, WasteEntry
from inference.charges import NOTHING, actual
from inference.dispatch.pool_view import PoolView
from inference.proofs import Prover
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.processes import a_sim_worker
from tests.support.gateways.service import PEPPER, Service
from tests.support.metrics import sample
from tests.support.polling import eventually

pytestmark = pytest.mark.stack

CHAT = "/v1/chat/completions"
GAPS = "penstock_gateway_frame_gaps_total"
STREAM = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Talk."}],
    "stream": True,
    "max_tokens": 400,
    "ignore_eos": True,
}


@pytest.fixture
async def sim_worker(
    service: Service, worker_redis_url: Callable[[str], str]
) -> AsyncIterator[Process]:
    async with a_sim_worker(worker_redis_url(POOL)) as process:
        yield process


async def records(redis: Redis) -> list[UsageEntry]:
    """Of what ended, whoever put it on record: the intake would believe each of them."""
    rows: Any = await redis.xrange(keys.pool_usage(POOL))
    entries = [
        codec.decode_usage_entry(fields[b"record"]) for _, fields in rows if b"record" in fields
    ]
    assert all(map(Prover(PEPPER).is_proven, entries))
    waste = [codec.decode_usage(fields[b"waste"]) for _, fields in rows if b"waste" in fields]
    assert all(isinstance(each, WasteEntry) and _is_proven(each) for each in waste)
    return entries


def _is_proven(entry: WasteEntry) -> bool:
    return Prover(PEPPER).is_owner_proven(entry)


async def test_streams_run_side_by_side_and_are_counted(
    service: Service, sim_worker: Process, dispatch_redis: Redis
) -> None:
    body = {**STREAM, "max_tokens": 20, "stream_options": {"include_usage": True}}
    async with service.client() as client:
        answers = await asyncio.gather(*(client.post(CHAT, json=body) for _ in range(8)))
    assert all(answer.text.endswith("data: [DONE]\n\n") for answer in answers)
    assert all('"completion_tokens":20' in answer.text for answer in answers)
    entries = await records(dispatch_redis)
    assert [entry.usage.completion_tokens for entry in entries] == [20] * 8


async def test_what_a_gateway_ends_itself_is_proven_and_owed(
    impatient_service: Service, dispatch_redis: Redis
) -> None:
    """Nobody takes them. The pool never had a slot, so what comes beside the first is not owed."""
    async with impatient_service.client() as client:
        whole = {**STREAM, "stream": False}
        answers = await asyncio.gather(*(client.post(CHAT, json=whole) for _ in range(3)))
    assert {answer.status_code for answer in answers} == {503}
    entries = await records(dispatch_redis)
    assert {entry.outcome for entry in entries} == {Outcome.EXPIRED}
    assert sorted(entry.owed for entry in entries) == [False, False, True]


async def test_the_ends_of_a_flood_beyond_its_slots_are_not_owed(
    service: Service, worker_redis_url: Callable[[str], str], dispatch_redis: Redis
) -> None:
    async with a_sim_worker(worker_redis_url(POOL), PENSTOCK_WORKER_SLOTS="4"):
        async with service.client() as client:
            body = {**STREAM, "max_tokens": 50}
            await asyncio.gather(*(client.post(CHAT, json=body) for _ in range(12)))
        owed = [entry.owed for entry in await records(dispatch_redis)]
    assert sorted(owed) == [False] * 8 + [True] * 4


async def test_clients_that_leave_leave_nothing_running(
    service: Service, sim_worker: Process, dispatch_redis: Redis
) -> None:
    async def ask_and_leave() -> None:
        async with service.client() as client, client.stream("POST", CHAT, json=STREAM) as answer:
            await anext(answer.aiter_bytes())

    await asyncio.gather(*(ask_and_leave() for _ in range(8)))

    async def all_are_recorded() -> bool:
        return len(await records(dispatch_redis)) == 8

    await eventually(all_are_recorded)
    assert {entry.outcome for entry in await records(dispatch_redis)} == {Outcome.CANCELLED}
    assert await dispatch_redis.zcard(keys.pool_open_requests(POOL)) == 0


async def test_frames_that_are_lost_on_their_way_are_sent_again(
    service: Service, sim_worker: Process, dispatch_redis: Redis
) -> None:
    body = {**STREAM, "max_tokens": 50}
    async with service.client() as client:
        undisturbed = (await client.post(CHAT, json=body)).text
        gaps = sample(GAPS)
        stealing = asyncio.create_task(_steal_frames(dispatch_redis, service))
        disturbed = (await client.post(CHAT, json=body)).text
    await stealing
    assert sample(GAPS) > gaps
    assert _words(disturbed) == _words(undisturbed)


async def _steal_frames(redis: Redis, service: Service) -> None:
    """Takes a batch from the gateway's list, as a connection does that breaks with it."""
    gateway_id = service.gateway.completions.hub.gateway_id
    await redis.blpop([keys.gateway_frames(gateway_id, POOL)])


def _words(answer: str) -> list[str]:
    events = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith("data: {")]
    choices = [event["choices"][0] for event in events if event["choices"]]
    return [choice["delta"].get("content", "") for choice in choices]


async def test_a_killed_worker_is_told_within_its_lease_where_no_other_can_go_on(
    service: Service, sim_worker: Process, dispatch_redis: Redis
) -> None:
    body = STREAM | {"stop": "ten"}
    async with service.client() as client, client.stream("POST", CHAT, json=body) as answer:
        parts = answer.aiter_text()
        await anext(parts)
        os.killpg(sim_worker.pid, signal.SIGKILL)
        rest = "".join([part async for part in parts])
    assert '"worker_lost"' in rest
    assert "[DONE]" not in rest
    [entry] = await records(dispatch_redis)
    assert entry.outcome is Outcome.FAILED
    assert 0 < entry.usage.completion_tokens < 400


async def test_streams_of_a_killed_worker_equal_undisturbed_ones(
    service: Service,
    sim_worker: Process,
    worker_redis_url: Callable[[str], str],
    dispatch_redis: Redis,
) -> None:
    async def ask(client: httpx.AsyncClient) -> tuple[str, str]:
        """The text, and the end."""
        text, end = "", ""
        async with client.stream("POST", CHAT, json=body, timeout=60) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    choices = json.loads(line[6:])["choices"]
                    text += "".join(each["delta"].get("content", "") for each in choices)
                    begun.set()
                end = line or end
        return text, end

    body, begun = STREAM | {"max_tokens": 120}, asyncio.Event()
    async with service.client() as client:
        undisturbed = await ask(client)
        begun.clear()
        streams = [asyncio.create_task(ask(client)) for _ in range(20)]
        await begun.wait()
        os.killpg(sim_worker.pid, signal.SIGKILL)
        async with a_sim_worker(worker_redis_url(POOL), "another"):
            answers = await asyncio.gather(*streams)
    assert undisturbed[1] == "data: [DONE]"
    assert set(answers) == {undisturbed}
    entries = await records(dispatch_redis)
    assert [entry.usage.completion_tokens for entry in entries] == [120] * 21
    assert {entry.attempt for entry in entries[1:]} == {2}
    assert await dispatch_redis.zcard(keys.pool_open_requests(POOL)) == 0


async def test_a_prompt_beyond_what_was_reserved_is_refused_and_costs_nothing(
    service: Service,
    sim_worker: Process,
    dispatch_redis: Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The template adds more than the gateway knows of."""
    monkeypatch.setattr(PoolView, "template_overhead_tokens", -2)
    async with service.client() as client:
        answers = [
            await client.post(CHAT, json=STREAM | {"stream": each}) for each in (False, True)
        ]
    for answer in answers:
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "prompt_beyond_reservation")
    for entry in await records(dispatch_redis):
        assert (entry.outcome, entry.usage) == (Outcome.REFUSED, TokenUsage())
        assert entry.error_code == "prompt_beyond_reservation"
        assert actual(entry.outcome, entry.usage, entry.prices) == NOTHING
