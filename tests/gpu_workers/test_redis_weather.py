"""A worker in bad weather: whatever Redis answers to whichever call, the worker lives, requests end
once, and nothing is left behind."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from gpu_workers import transport, worker
from gpu_workers.outbox import relay
from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Outcome, Resend
from gpu_workers.sim.engine import SimEngine
from gpu_workers.worker import Exit
from tests.support.polling import eventually
from tests.support.redis_servers.weather import WEATHER, RedisWeather, is_usual, redis_weather
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import RunningWorker, running_worker
from tests.support.workers.usage_stream import acknowledge

# What a worker asks of Redis between its start and its end, and which part of the test brings it
# about.
AT_START = ("TIME", "register", "SREM usage-withheld")
AT_END = ("leave",)
WHILE_IT_SERVES = (
    "claim",
    "beat",
    "report_progress",
    "BLMPOP inbox",
    "RPUSH frames",
    "EXISTS alive",
    "finish",
    "SPOP receipts",
    "missing_usage",
)
WHEN_SOMETHING_WAS_LOST = ("held", "adopt", "append_usage", "SADD workers-resynced")
IN_OTHER_TESTS = ("requeue",)
TOKENS = 12
ALL_WEATHER = [
    pytest.param(how, marks=() if is_usual(how) else pytest.mark.rare) for how in WEATHER
]


@pytest.fixture
async def weather(
    sim_redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[RedisWeather]:
    """What comes every few seconds comes often, so that it meets the weather soon; and what is
    refused again and again is soon tried again."""
    monkeypatch.setattr(transport, "MAX_RETRY_SECONDS", 0.2)
    monkeypatch.setattr(worker, "CHECK_GATEWAYS_EVERY_SECONDS", 0.1)
    monkeypatch.setattr(relay, "TICK_SECONDS", 0.1)
    async with redis_weather(sim_redis_url) as weather:
        yield weather


async def serve(gateway: FakeGateway, *, tokens: int = TOKENS) -> str:
    """One request, from its enqueueing to the end that its client sees."""
    request_id = await gateway.send(make_envelope(max_output_tokens=tokens))
    terminal = await gateway.terminal_of(request_id, seconds=20)
    assert terminal.outcome is Outcome.COMPLETED
    return request_id


async def nothing_is_left(redis: Redis, running: RunningWorker) -> bool:
    """All slots are free, no request is open, and the outbox waits for receipts alone."""
    worker_id = running.worker_id
    free, slots, held, is_open, in_doubt = (
        await redis.zscore(keys.pool_free_slots("sim"), worker_id),
        await redis.zscore(keys.pool_slots("sim"), worker_id),
        await redis.scard(keys.pool_worker_requests("sim", worker_id)),
        await redis.zcard(keys.pool_open_requests("sim")),
        await running.outbox.in_doubt(),
    )
    return free == slots and not (held or is_open or in_doubt)


def an_engine() -> SimEngine:
    return SimEngine(slots=4, step_seconds=0.03)


@pytest.mark.parametrize("how", ALL_WEATHER)
async def test_whatever_a_call_is_answered_the_worker_lives_and_its_request_ends_once(
    how: str, weather: RedisWeather, dispatch_redis: Redis, gateway: FakeGateway
) -> None:
    for call in AT_START:
        weather.strike(call, how)
    async with running_worker(weather.url, an_engine()) as running:
        await eventually(lambda: dispatch_redis.zcard(keys.pool_slots("sim")), 15)
        served = []
        for call in WHILE_IT_SERVES:
            weather.strike(call, how)
            while not weather.is_over(call):
                served.append(await serve(gateway))
            await eventually(lambda: nothing_is_left(dispatch_redis, running), 15)
        assert sorted(each.request_id for each in await gateway.usage_entries()) == sorted(served)
        await acknowledge(dispatch_redis)
        for call in AT_END:
            weather.strike(call, how)
        running.worker.drain()
        assert await running.exit_code() is Exit.DRAINED
    assert {*AT_START, *WHILE_IT_SERVES, *AT_END} <= set(weather.strikes)


@pytest.mark.parametrize("how", ALL_WEATHER)
async def test_what_a_lost_redis_is_told_again_may_meet_bad_weather_too(
    how: str, weather: RedisWeather, dispatch_redis: Redis, gateway: FakeGateway
) -> None:
    async with running_worker(weather.url, an_engine()) as running:
        await running.ready()
        ended = await serve(gateway)
        for call in WHEN_SOMETHING_WAS_LOST:
            weather.strike(call, how)
        long = await gateway.send(make_envelope(max_output_tokens=60))
        await gateway.delta_of(long)
        await dispatch_redis.flushdb()
        await gateway.appear()
        assert (await gateway.terminal_of(long, seconds=20)).outcome is Outcome.COMPLETED

        async def is_told() -> bool:
            return bool(await dispatch_redis.sismember(keys.pool_workers_resynced("sim"), "w"))

        await eventually(is_told, 15)
        await eventually(lambda: nothing_is_left(dispatch_redis, running), 15)
        # One whose answer was lost is appended again; the collector knows it by its request.
        assert {each.request_id for each in await gateway.usage_entries()} == {ended, long}
        assert not running.task.done()


@pytest.mark.parametrize("how", ALL_WEATHER)
async def test_a_request_that_is_given_back_in_bad_weather_goes_on_elsewhere(
    how: str, weather: RedisWeather, sim_redis_url: str, gateway: FakeGateway
) -> None:
    slow = SimEngine(slots=4, step_seconds=0.2)
    async with running_worker(weather.url, slow, "first", drain_seconds=0.01) as first:
        await first.ready()
        request_id = await gateway.send(make_envelope(max_output_tokens=TOKENS))
        await gateway.delta_of(request_id)
        async with running_worker(sim_redis_url, an_engine(), "second") as second:
            await second.ready()
            weather.strike("requeue", how)
            first.worker.drain()
            assert (await gateway.terminal_of(request_id, seconds=20)).attempt == 2
            assert await first.exit_code() is Exit.DRAINED
    assert weather.strikes["requeue"] == 2
    assert len(await gateway.usage_entries()) == 1


async def test_the_table_names_every_call_of_a_worker(
    weather: RedisWeather, dispatch_redis: Redis, gateway: FakeGateway, tmp_path: Path
) -> None:
    """A call that is added to the worker's has to be added to the table."""
    async with running_worker(weather.url, an_engine(), drain_seconds=0.01) as running:
        await running.ready()
        ended = await serve(gateway)
        await gateway.ask_again(running.worker_id, Resend(request_id=ended, attempt=1, from_seq=0))
        await acknowledge(dispatch_redis)
        await serve(gateway)  # for the relay to append again
        long = await gateway.send(make_envelope(max_output_tokens=200))
        await gateway.delta_of(long)
        await dispatch_redis.client_kill_filter(_type="normal", skipme=True)
        await eventually(lambda: weather.calls["held"], 10)
        await dispatch_redis.flushdb()
        await gateway.appear()
        await eventually(lambda: weather.calls["adopt"], 10)
        await eventually(lambda: weather.calls["append_usage"], 10)
        running.worker.drain()
        async with asyncio.timeout(20):
            await running.task
    in_table = (*AT_START, *WHILE_IT_SERVES, *WHEN_SOMETHING_WAS_LOST, *IN_OTHER_TESTS, *AT_END)
    assert sorted(set(weather.calls) - set(in_table)) == []
    assert sorted(set(in_table) - set(weather.calls)) == []


async def test_a_gateway_that_a_pause_of_redis_kept_from_beating_is_not_taken_for_gone(
    weather: RedisWeather,
    dispatch_redis: Redis,
    gateway: FakeGateway,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its heartbeat is missing when Redis is back, and comes a little later."""
    monkeypatch.setattr(worker, "GATEWAYS_PAUSE_SECONDS", 0.4)
    looks = "EXISTS alive"
    async with running_worker(weather.url, an_engine()) as running:
        await running.ready()
        request_id = await gateway.send(make_envelope(max_output_tokens=100))
        await gateway.delta_of(request_id)
        await gateway.vanish()
        await dispatch_redis.client_pause(600, all=True)
        before = weather.calls[looks]
        await dispatch_redis.ping()  # answered when the pause is over
        await eventually(lambda: weather.calls[looks] >= before + 3)
        await gateway.appear()
        assert (await gateway.terminal_of(request_id)).outcome is Outcome.COMPLETED
        gone = await gateway.send(make_envelope(max_output_tokens=1000))
        await gateway.delta_of(gone)
        await gateway.vanish()
        assert (await gateway.terminal_of(gone)).outcome is Outcome.CANCELLED
