"""A gateway in bad weather: whatever Redis answers to whichever call, a request ends right, is on
record once, and nothing stays reserved."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from gpu_workers.cancellation import cancel_and_wait
from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Outcome
from inference.admission import reservations
from inference.lifecycle import cancellation
from inference.lifecycle.completions import GatewaySettings
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.scripted_worker import WORDS, Run, ScriptedWorker
from tests.support.gateways.service import Service, Snapshot, a_service
from tests.support.polling import eventually
from tests.support.redis_servers.weather import (
    ANSWER_LOST,
    ERRORS,
    WEATHER,
    RedisWeather,
    is_usual,
    redis_weather,
)

ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Count."}], "stream": True}
# redis-py tries a call three times on a broken connection; our own retries begin after that.
ALL_WEATHER = [
    pytest.param(how, 2 if how in ERRORS else 4, marks=() if is_usual(how) else pytest.mark.rare)
    for how in WEATHER
]
# In one kind of weather; it is over after a few.
MOST_REQUESTS = 60

# What a gateway asks of Redis: before a request, for it, after it, and all the time.
FOR_A_REQUEST = (
    "SADD tenants-with-reservations",
    "reserve",
    "enqueue",
    "BLMPOP wake",
    "true_down",
    "settle",
)
ALL_THE_TIME = (
    "GET version",
    "EXPIRE alive",
    "EXPIRE wake",
    "EXPIRE frames",
    "SADD known",
    "epoch",
    "reap",
)
FOR_A_NEW_SNAPSHOT = ("HGET api-keys", "HGET tenants", "HVALS models", "HSET keys")
OF_A_POOL = ("HGETALL workers", "ZRANGE heartbeats", "HGET scheduler", "TIME")
AT_AN_EARLY_END = ("cancel", "finish", "HGET request")


@pytest.fixture
async def weather(
    gateway_redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RedisWeather]:
    """What comes every half minute comes each second, so that it meets the weather soon."""
    monkeypatch.setattr(reservations, "HINT_SECONDS", 1.0)
    async with redis_weather(gateway_redis_url) as weather:
        yield weather


@pytest.fixture
async def exposed(
    weather: RedisWeather, gateway_settings: GatewaySettings, snapshot: Snapshot
) -> AsyncIterator[Service]:
    """A service that has its Redis by way of the weather."""
    async with a_service(
        replace(gateway_settings, dispatch_redis_url=weather.url), snapshot
    ) as service:
        yield service


async def ask(service: Service) -> str:
    async with service.client() as client:
        answer = await client.post("/v1/chat/completions", json=ASK, timeout=30)
    assert answer.status_code == 200, answer.text
    assert answer.text.endswith("data: [DONE]\n\n"), answer.text
    return str(answer.headers["x-request-id"])


async def nothing_is_left(redis: Redis, slots: int) -> bool:
    """Nothing is open or reserved, and all slots are free."""
    free: Any = await redis.zrange(keys.pool_free_slots(POOL), 0, -1, withscores=True)
    return not (
        await redis.zcard(keys.pool_open_requests(POOL))
        or await redis.hlen(keys.tenant_reservations("acme"))
        or await redis.hlen(keys.tenant_open("acme"))
        or sum(score for _, score in free) != slots
    )


@pytest.mark.parametrize(("how", "times"), ALL_WEATHER)
async def test_whatever_a_call_is_answered_a_request_is_answered_whole_and_recorded_once(
    how: str,
    times: int,
    weather: RedisWeather,
    exposed: Service,
    worker: ScriptedWorker,
    dispatch_redis: Redis,
) -> None:
    async def count_while_it_is_trued_down(run: Run) -> None:
        trued_down = weather.calls["true_down"]
        for word in WORDS:
            await run.say(word)
        with suppress(AssertionError):
            await eventually(lambda: weather.calls["true_down"] > trued_down, 0.5)
        await run.end()

    worker.script = count_while_it_is_trued_down
    await worker.start(slots=8)
    lease = asyncio.create_task(worker.keep_lease(slots=8))
    try:
        asked = await ask_in(weather, exposed, how, times)
        await eventually(lambda: nothing_is_left(dispatch_redis, 8), 20)
    finally:
        await cancel_and_wait([lease])
    records = await worker.records()
    assert sorted(record.request_id for record in records) == sorted(asked)


async def ask_in(weather: RedisWeather, exposed: Service, how: str, times: int) -> list[str]:
    """Ask while every call meets this weather, until each has; return the requests."""
    asked = []
    await exposed.snapshot.put_tenant("Acme", name="Acme anew")
    for group in ((*FOR_A_NEW_SNAPSHOT, *ALL_THE_TIME), OF_A_POOL, FOR_A_REQUEST):
        # Frames that are lost come again from a worker's ring, which the scripted one has not.
        calls = [call for call in group if (call, how) != ("BLMPOP wake", ANSWER_LOST)]
        for call in calls:
            weather.strike(call, how, times=times)
        for _ in range(MOST_REQUESTS):
            if all(map(weather.is_over, calls)):
                break
            asked.append(await ask(exposed))
            with suppress(AssertionError):
                await eventually(lambda: all(map(weather.is_over, calls)), 0.5)  # noqa: B023
        assert [call for call in calls if not weather.is_over(call)] == []
        assert all(weather.strikes[call] >= times for call in calls)
    return asked


@pytest.mark.parametrize(("how", "times"), ALL_WEATHER)
async def test_a_client_that_leaves_in_bad_weather_leaves_nothing_behind(
    how: str,
    times: int,
    weather: RedisWeather,
    exposed: Service,
    worker: ScriptedWorker,
    dispatch_redis: Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cancellation, "MAX_PAUSE_SECONDS", 0.1)
    for call in AT_AN_EARLY_END:
        weather.strike(call, how, times=times)
    async with exposed.client() as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/v1/chat/completions", json=ASK, timeout=0.3)
    await eventually(lambda: nothing_is_left(dispatch_redis, 0), 20)
    [record] = await worker.records()
    assert record.outcome is Outcome.CANCELLED
    await eventually(lambda: weather.strikes["cancel"] == times)
    # Where the answers of three were lost, the end is found on record.
    assert weather.strikes["finish"] >= min(times, 3)


async def test_the_table_names_every_call_of_a_gateway(
    weather: RedisWeather, exposed: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    """A call that is added to the gateway's has to be added to the table, or to those at which an
    error is the caller's, or nobody's."""

    async def talk_until_trued_down(run: Run) -> None:
        await run.say("One")
        await eventually(lambda: weather.calls["true_down"])
        await run.end()

    worker.script = talk_until_trued_down
    async with exposed.client() as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/v1/chat/completions", json=ASK, timeout=0.3)
        await worker.start(slots=8)
        await ask(exposed)
        for call in ("settle", "HSET keys", "EXPIRE frames"):
            await eventually(lambda: weather.calls[call])  # noqa: B023
        assert (await client.get("/v1/limits")).status_code == 200
        assert (await client.get("/v1/models")).status_code == 200
    in_table = {*FOR_A_REQUEST, *ALL_THE_TIME, *FOR_A_NEW_SNAPSHOT, *OF_A_POOL, *AT_AN_EARLY_END}
    told_at_once = {"limit_status", "forecast"}
    of_a_list = {"HGET adapters"}  # where a request names an adapter, it is a row as its key's
    of_its_start = {"FUNCTION LOAD", "SET alive"}
    expires_anyway = {"UNLINK last-frames"}
    of_a_pools_first_request = {"RPUSH wake"}  # the reader comes back by itself too
    until_answered = {"HMGET request"}  # only where frames came before their holder was known
    not_in_table = (
        told_at_once
        | of_a_list
        | of_its_start
        | expires_anyway
        | of_a_pools_first_request
        | until_answered
    )
    assert sorted(set(weather.calls) - in_table - not_in_table) == []
    assert sorted(in_table - set(weather.calls)) == []
