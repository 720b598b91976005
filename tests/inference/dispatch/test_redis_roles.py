"""A Redis that restarted empty, with a user per role: gateways and workers wait, and the control
plane gives the functions back."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from redis.asyncio import Redis

from gpu_workers.heartbeat import Heartbeat
from gpu_workers.outbox.outbox import Outbox
from gpu_workers.protocol import keys
from gpu_workers.sim.engine import SimEngine
from gpu_workers.transport import Transport
from gpu_workers.worker import Exit, Worker
from inference import tasks
from inference.dispatch.queue import Dispatch, RequestState
from inference.redis_functions import LIBRARIES, FunctionLibrary
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import Service

CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Count."}]}


async def test_a_gateway_whose_redis_lost_its_functions_answers_again_once_they_are_back(
    impatient_service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    await worker.start()
    async with impatient_service.client() as client:
        await dispatch_redis.function_flush("SYNC")
        lost = await client.post("/v1/chat/completions", json=CHAT)
        assert lost.status_code == 503
        assert "retry-after" in lost.headers
        assert await asyncio.to_thread(tasks.restore_functions) == 2
        assert await asyncio.to_thread(tasks.restore_functions) == 0
        assert (await client.post("/v1/chat/completions", json=CHAT)).status_code == 200


async def test_a_gateway_loads_no_functions_and_says_so(
    dispatch_redis: Redis, gateway_redis_url: str
) -> None:
    async with Redis.from_url(gateway_redis_url) as redis:
        for library in LIBRARIES:
            assert not await FunctionLibrary(redis, library).load()


async def test_a_worker_with_another_pools_user_stops_with_one_sentence(
    dispatch_redis: Redis,
    worker_redis_url: Callable[[str], str],
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    url = worker_redis_url("another-pool")
    transport = Transport(url, pool=POOL, worker_id="w#1", worker_name="w")
    worker = Worker(
        engine=SimEngine(),
        transport=transport,
        heartbeat=Heartbeat(url, pool=POOL, worker_id="w#1"),
        outbox=Outbox.open(tmp_path, pool=POOL),
        worker_id="w#1",
        name="w",
        pool=POOL,
        model=MODEL,
        engine_name="sim",
    )
    assert await worker.run() is Exit.START_FAILED
    assert f"may not serve the pool {POOL}" in caplog.text
    assert not await dispatch_redis.exists(keys.pool_workers(POOL))


async def test_a_redis_with_one_user_for_all_gets_its_functions_from_whoever_needs_them(
    dispatch_redis: Redis,
) -> None:
    await dispatch_redis.function_flush("SYNC")
    assert await Dispatch(dispatch_redis).cancel(POOL, "request") is RequestState.UNKNOWN
