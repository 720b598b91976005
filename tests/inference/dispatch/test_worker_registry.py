"""What the workers of a pool say of themselves, and what a request makes of it."""

import asyncio
from typing import Any

import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import codec, functions, keys
from gpu_workers.protocol.messages import WorkerInfo, WorkerState
from gpu_workers.protocol.policy import ModelPolicy
from inference.dispatch.pool_view import UNKNOWN_OVERHEAD_TOKENS, PoolView
from inference.dispatch.worker_registry import PoolWorker, WorkerRegistry
from tests.support.gateways.cast import MODEL, POOL, a_worker_info, encoded_worker_info
from tests.support.gateways.scripted_worker import ScriptedWorker

POLICY = ModelPolicy(name=MODEL, pool=POOL, context_tokens=2048, created_at=1, owned_by="penstock")


def live(info: WorkerInfo) -> PoolWorker:
    return PoolWorker(info=info, is_live=True)


def dead(info: WorkerInfo) -> PoolWorker:
    return PoolWorker(info=info, is_live=False)


def view_of(*workers: PoolWorker) -> PoolView:
    return PoolView(model=POLICY, workers=workers)


async def test_the_registry_tells_live_workers_from_dead_ones(
    dispatch_redis: Redis, worker: ScriptedWorker
) -> None:
    await worker.start()
    registry = WorkerRegistry(dispatch_redis)
    assert await registry.is_ready(POOL)
    await worker.die()
    [found] = await WorkerRegistry(dispatch_redis).workers(POOL)
    assert not found.is_live


async def test_a_starting_worker_is_live_and_not_ready(dispatch_redis: Redis) -> None:
    info = encoded_worker_info("w#1", state=WorkerState.STARTING, context_tokens=0)
    prefix = keys.pool_prefix(POOL)
    await dispatch_redis.fcall(functions.REGISTER, 1, prefix, "w#1", "w", info)
    registry = WorkerRegistry(dispatch_redis)
    [starting] = await registry.workers(POOL)
    assert starting.is_live
    assert starting.info == codec.decode_worker_info(info)
    assert not await registry.is_ready(POOL)


async def registered(redis: Redis, count: int, **changes: Any) -> None:
    for number in range(count):
        worker_id = f"w-{number}#1"
        info = encoded_worker_info(worker_id, **changes)
        prefix = keys.pool_prefix(POOL)
        await redis.fcall(functions.REGISTER, 1, prefix, worker_id, f"w-{number}", info)


async def reads(redis: Redis) -> int:
    statistics = await redis.info("commandstats")
    return int(statistics.get("cmdstat_hgetall", {}).get("calls", 0))


async def test_many_requests_at_once_read_a_pool_once(dispatch_redis: Redis) -> None:
    await registered(dispatch_redis, 3)
    registry, before = WorkerRegistry(dispatch_redis), await reads(dispatch_redis)
    await asyncio.gather(*(registry.workers(POOL) for _ in range(50)))
    assert await reads(dispatch_redis) == before + 1


async def test_a_large_pool_is_read_more_rarely(dispatch_redis: Redis) -> None:
    now = 0.0
    registry = WorkerRegistry(dispatch_redis, clock=lambda: now)
    await registered(dispatch_redis, 400)
    await registry.workers(POOL)
    before = await reads(dispatch_redis)
    now = 1.9
    await registry.workers(POOL)
    assert await reads(dispatch_redis) == before
    now = 2.1
    await registry.workers(POOL)
    assert await reads(dispatch_redis) == before + 1


async def test_workers_that_are_alike_are_looked_at_as_one(dispatch_redis: Redis) -> None:
    await registered(dispatch_redis, 20)
    info = encoded_worker_info("other#1", context_tokens=77)
    prefix = keys.pool_prefix(POOL)
    await dispatch_redis.fcall(functions.REGISTER, 1, prefix, "other#1", "other", info)
    registry = WorkerRegistry(dispatch_redis)
    assert len(await registry.workers(POOL)) == 21
    contexts = sorted(each.info.context_tokens for each in await registry.kinds(POOL))
    assert len(contexts) == 2
    assert contexts[0] == 77


def test_a_pool_without_workers_is_what_its_model_says() -> None:
    view = view_of()
    assert view.template_overhead_tokens == UNKNOWN_OVERHEAD_TOKENS
    assert view.context_tokens(None) == 2048
    assert view.exceeded_context(10**9, None) is None, "no worker has said that it does not fit"


def test_a_starting_worker_bounds_nothing() -> None:
    view = view_of(live(a_worker_info(state=WorkerState.STARTING, context_tokens=0)))
    assert view.context_tokens(None) == 2048
    assert view.exceeded_context(1, None) is None


def test_the_largest_context_of_the_workers_counts_and_that_of_a_dead_one_too() -> None:
    view = view_of(
        live(a_worker_info("one#1", context_tokens=100)),
        dead(a_worker_info("two#1", context_tokens=300)),
    )
    assert view.context_tokens(None) == 300
    assert view.context_tokens(200) == 200, "no more than the caller's tier allows"


@pytest.mark.parametrize(("limit", "most"), [(None, 100), (50, 50), (500, 100)])
def test_a_prompt_that_fits_no_live_worker_however_it_is_tokenized_exceeds_the_context(
    limit: int | None, most: int
) -> None:
    view = view_of(
        live(a_worker_info("one#1", context_tokens=100, max_token_bytes=2)),
        live(a_worker_info("two#1", context_tokens=40, max_token_bytes=2)),
        dead(a_worker_info("three#1", context_tokens=10**6)),
    )
    assert view.exceeded_context(2 * most, limit) is None
    assert view.exceeded_context(2 * most + 1, limit) == most
    assert view.exceeded_context(0, limit, token_ids=most) is None
    assert view.exceeded_context(0, limit, token_ids=most + 1) == most


def test_a_pool_resumes_where_each_of_its_live_workers_does() -> None:
    able, unable = a_worker_info("one#1"), a_worker_info("two#1", can_resume=False)
    assert view_of(live(able), dead(unable)).can_resume
    assert not view_of(live(able), live(unable)).can_resume
