"""A busy worker is not a dead one: its lease outlives the absence of its event loop."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import RedisError

from gpu_workers.heartbeat import LOOKS_OF_A_STUCK_LOOP, Heartbeat, LoopAge
from gpu_workers.protocol import functions, keys
from gpu_workers.protocol.messages import Outcome, WorkerState
from gpu_workers.protocol.redis_url import connect_async
from gpu_workers.worker import Exit
from inference.dispatch.queue import Dispatch
from inference.dispatch.worker_registry import WorkerRegistry
from inference.lua_constants import STALE_LOOP_MS
from inference.redis_functions import LIBRARIES, library_text
from tests.support.gateways.cast import a_worker_info
from tests.support.polling import eventually
from tests.support.redis_servers.sentinels import sentinels
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.worker_process import published, worker_process

ENDLESS: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Go on for ever."}],
    "ignore_eos": True,
}


@pytest.mark.stack
@pytest.mark.parametrize(
    "seconds", ["8", pytest.param("15", marks=pytest.mark.rare)], ids=["a-lease", "15-s"]
)
async def test_a_loop_that_is_blocked_beyond_the_lease_loses_nothing_and_is_given_nothing(
    dispatch_redis: Redis,
    sim_redis_url: str,
    gateway: FakeGateway,
    tmp_path: Path,
    seconds: str,
) -> None:
    dispatch, registry = Dispatch(dispatch_redis), WorkerRegistry(dispatch_redis)
    faults = {"sim_block_after_steps": "5", "sim_block_seconds": seconds}

    async def is_stale() -> bool:
        info = await published(dispatch_redis)
        return info is not None and info.loop_age_ms > STALE_LOOP_MS

    async def is_back() -> bool:
        assert await dispatch.reap("sim", gateway_id=gateway.gateway_id) == [], (
            "a busy worker was taken for a dead one"
        )
        return not await is_stale()

    async with worker_process(sim_redis_url, tmp_path, sim_step_ms="5", **faults):
        held = await gateway.send(make_envelope(ENDLESS, max_output_tokens=40))
        await gateway.delta_of(held)
        await eventually(is_stale, timeout_seconds=10)
        (worker,) = await registry.workers("sim")
        assert worker.is_live
        assert worker.is_busy
        assert not worker.is_ready
        late = await gateway.send(make_envelope(ENDLESS, max_output_tokens=2))
        assert await dispatch_redis.hget(keys.pool_request("sim", late), "state") == b"queued"
        await eventually(is_back, timeout_seconds=30)
        for request_id in (held, late):
            assert (await gateway.terminal_of(request_id)).outcome is Outcome.COMPLETED
    # A write whose answer came while the loop stood is repeated; gateways drop what they have.
    taken = list(dict.fromkeys(delta.seq for delta in gateway.deltas[held]))
    assert taken == list(range(len(taken)))
    entries = {entry.request_id: entry for entry in await gateway.usage_entries()}
    assert {name: entry.attempt for name, entry in entries.items()} == {held: 1, late: 1}
    assert entries[held].usage.completion_tokens == 40


@pytest.mark.stack
async def test_a_loop_that_is_stuck_for_good_ends_its_process_with_a_code_of_its_own(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway, tmp_path: Path
) -> None:
    faults = {"sim_block_after_steps": "1", "sim_block_seconds": "3600", "stuck_seconds": "1"}
    async with worker_process(sim_redis_url, tmp_path, **faults) as worker:
        await gateway.send(make_envelope(ENDLESS))
        async with asyncio.timeout(30):
            assert await worker.wait() == Exit.LOOP_STUCK


async def test_the_beats_need_no_more_than_the_rights_of_the_pools_workers(
    dispatch_redis: Redis, sim_redis_url: str, tmp_path: Path
) -> None:
    async def is_beaten() -> bool:
        info = await published(dispatch_redis)
        return info is not None and info.state is WorkerState.READY and info.loop_age_ms > 0

    async with worker_process(sim_redis_url, tmp_path):
        # Claims come from the loop, and report its age as 0.
        await eventually(is_beaten, timeout_seconds=20)


@pytest.mark.stack
@pytest.mark.rare
async def test_the_beats_follow_a_failover() -> None:
    worker_id = "w#1"
    info = a_worker_info(worker_id, pool="sim")
    with sentinels() as watched:
        heartbeat = Heartbeat(watched.url, pool="sim", worker_id=worker_id)
        redis = connect_async(watched.url, socket_timeout=1)

        async def is_beaten() -> bool:
            try:
                await redis.hset(keys.pool_workers("sim"), worker_id, b"")
                return bool(await eventually(lambda: redis.hget(infos, worker_id), 3))
            except (RedisError, OSError, AssertionError):
                return False

        infos = keys.pool_workers("sim")
        for library in LIBRARIES:
            await redis.function_load(library_text(library))
        call = (functions.REGISTER, 1, keys.pool_prefix("sim"), worker_id, "w", b"")
        await redis.fcall(*call)
        heartbeat.publish(info)
        heartbeat.start(on_age=lambda _: None, on_stuck=lambda _: None)
        try:
            await eventually(is_beaten, 10)
            await redis.wait(1, 1000)
            watched.fail_over()
            await eventually(is_beaten, 30)
        finally:
            await heartbeat.close()
            await redis.aclose()


class Loop:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.asked: list[Callable[[], None]] = []

    def answer(self) -> None:
        while self.asked:
            self.asked.pop()()


def test_a_loop_is_as_old_as_its_last_answer() -> None:
    loop, now = Loop(), 100.0
    age = LoopAge(loop.asked.append, clock=lambda: now)
    age.look()
    now = 103.0
    age.look()
    assert age.seconds == 3.0
    assert len(loop.asked) == 1, "it is asked once, however often that is looked at"
    loop.answer()
    assert age.seconds == 0.0


def test_only_a_loop_that_leaves_many_looks_unanswered_is_stuck() -> None:
    loop, now = Loop(), 100.0
    age = LoopAge(loop.asked.append, clock=lambda: now)
    age.look()
    now += 3600  # the process was stopped
    age.look()
    assert age.seconds == 3600
    assert not age.is_stuck(60)
    for _ in range(LOOKS_OF_A_STUCK_LOOP):
        age.look()
    assert age.is_stuck(60)
    assert not age.is_stuck(7200)
    loop.answer()
    assert not age.is_stuck(0)
