"""A worker is ready when it is warm, and tells what it serves on a lesser path."""

import asyncio
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from redis.asyncio import Redis

from gpu_workers.engine import EngineDescription, EngineDied
from gpu_workers.protocol.messages import WorkerState
from gpu_workers.sim.engine import SimEngine
from gpu_workers.worker import Exit
from tests.support.places import LOOPBACK, free_port
from tests.support.polling import eventually
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import Steps, running_worker
from tests.support.workers.worker_process import published, worker_process

ONE, OTHER = "sha256:" + "1" * 32, "sha256:" + "2" * 32


class WarmingEngine(SimEngine):
    """Warm as soon as the test says so."""

    def __init__(self) -> None:
        super().__init__(sleep=Steps(granted=100))
        self.is_asked = asyncio.Event()
        self.may_end = asyncio.Event()

    async def warm_up(self) -> None:
        self.is_asked.set()
        await self.may_end.wait()


async def test_a_worker_takes_nothing_before_it_is_warm(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    engine, warmed = WarmingEngine(), list[bool]()
    async with running_worker(sim_redis_url, engine, on_warm=lambda: warmed.append(True)):
        await engine.is_asked.wait()
        request_id = await gateway.send(make_envelope(max_output_tokens=2))
        info = await published(dispatch_redis)
        assert info is not None
        assert info.state is WorkerState.STARTING
        assert (engine.load().held, warmed) == (0, [])
        engine.may_end.set()
        await gateway.terminal_of(request_id)
    assert warmed == [True]


class DyingEngine(SimEngine):
    async def warm_up(self) -> None:
        raise EngineDied("of the first log-probabilities")


async def test_an_engine_that_dies_of_its_warm_up_ends_the_worker(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    async with running_worker(sim_redis_url, DyingEngine()) as running:
        assert await running.exit_code() is Exit.START_FAILED


class LesserEngine(SimEngine):
    async def start(self) -> EngineDescription:
        return replace(await super().start(), degraded=("chat_fast_path",))


async def test_what_an_engine_does_without_is_published_and_keeps_nobody_from_it(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    async with running_worker(sim_redis_url, LesserEngine(sleep=Steps(granted=100))) as running:
        await running.ready()
        request_id = await gateway.send(make_envelope(max_output_tokens=2))
        await gateway.terminal_of(request_id)
        info = await published(dispatch_redis)
    assert info is not None
    assert info.degraded == ["chat_fast_path"]
    assert info.problem == ""


@pytest.mark.stack
async def test_a_workers_metrics_tell_of_its_loop_and_its_collections(
    dispatch_redis: Redis, sim_redis_url: str, tmp_path: Path
) -> None:
    port = free_port()

    async def is_ready() -> bool:
        info = await published(dispatch_redis)
        return info is not None and info.state is WorkerState.READY

    async with worker_process(sim_redis_url, tmp_path, metrics_port=str(port)):
        await eventually(is_ready, timeout_seconds=20)
        async with httpx.AsyncClient() as client:
            text = (await client.get(f"http://{LOOPBACK}:{port}/metrics")).text
    assert 'penstock_worker_gc_seconds_count{generation="2"}' in text
    assert 'penstock_worker_loop_age_seconds{model="sim"}' in text


class FetchingEngine(SimEngine):
    """One whose model is not on this disk before it starts."""

    async def start(self) -> EngineDescription:
        return replace(await super().start(), model_digest=OTHER)


async def test_a_worker_that_would_serve_another_model_leaves_with_the_reason(
    dispatch_redis: Redis, sim_redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_worker(sim_redis_url, SimEngine(), "first", model_digest=ONE) as first:
        await first.ready()
        async with running_worker(sim_redis_url, SimEngine(), model_digest=OTHER) as other:
            assert await other.exit_code() is Exit.WRONG_MODEL
        async with running_worker(sim_redis_url, FetchingEngine()) as late:
            assert await late.exit_code() is Exit.WRONG_MODEL
        async with running_worker(sim_redis_url, SimEngine(), "alike", model_digest=ONE) as alike:
            await alike.ready()
    assert caplog.text.count(f"it serves sim {ONE}, and worker w brings sim {OTHER}") == 2
