"""A gateway whose wall clock is set, or is wrong: requests are dated by Redis, and nobody's key
expires early."""

import time
import uuid
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from gpu_workers.protocol.messages import Outcome
from gpu_workers.protocol.request_id import made_at_ms
from tests.support.gateways.cast import MODEL
from tests.support.gateways.scripted_worker import Run, ScriptedWorker, count_to_three
from tests.support.gateways.service import Service
from tests.support.polling import eventually

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Count."}]}
MOST_MS = 20_000


def step_wall(monkeypatch: pytest.MonkeyPatch, hours: int) -> None:
    read_time, read_time_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: read_time() + hours * 3_600)
    monkeypatch.setattr(time, "time_ns", lambda: read_time_ns() + hours * 3_600_000_000_000)


async def redis_ms(redis: Redis) -> int:
    seconds, microseconds = await redis.time()
    return int(seconds) * 1000 + int(microseconds) // 1000


@pytest.mark.parametrize("hours", [-6, 6])
async def test_what_a_gateway_dates_is_dated_by_redis(
    hours: int,
    service: Service,
    worker: ScriptedWorker,
    dispatch_redis: Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arrived: list[int] = []

    async def note_arrival(run: Run) -> None:
        arrived.append(run.envelope.arrived_at_ms)
        await count_to_three(run)

    worker.script = note_arrival
    await worker.start()
    before_ms = await redis_ms(dispatch_redis)
    step_wall(monkeypatch, hours)
    async with service.client() as client:
        answer = await client.post(CHAT, json=ASK)
    assert answer.status_code == 200
    assert 0 <= arrived[0] - before_ms < MOST_MS
    made_ms = made_at_ms(uuid.UUID(answer.headers["x-request-id"]))
    assert 0 <= made_ms - before_ms < MOST_MS


@pytest.mark.parametrize("hours", [-6, 6])
async def test_what_a_gateway_ends_itself_ends_after_it_came(
    hours: int, service: Service, worker: ScriptedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody takes it, and its client leaves while the clock is being set."""
    requests = service.gateway.completions.settlement.requests
    async with service.client() as client:
        with pytest.raises(httpx.ReadTimeout):
            asked = client.post(CHAT, json=ASK, timeout=0.3)
            step_wall(monkeypatch, hours)
            await asked
    await eventually(lambda: not len(requests))
    [record] = await eventually(worker.records)
    assert record.outcome is Outcome.CANCELLED
    assert 0 <= record.finished_at_ms - record.arrived_at_ms < MOST_MS


async def test_a_key_does_not_expire_by_a_wall_clock_that_is_ahead(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await worker.start()
    in_an_hour = await redis_ms(dispatch_redis) + 3_600_000
    key = await service.snapshot.add_key("Acme", expires_at_ms=in_an_hour)
    step_wall(monkeypatch, 6)
    async with service.client(key) as client:
        assert (await client.post(CHAT, json=ASK)).status_code == 200
