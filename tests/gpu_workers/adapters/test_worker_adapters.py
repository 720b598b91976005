"""Which adapters an engine has: those that requests use, and what the dispatcher hears of it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from gpu_workers.adapters.cache import AdapterCache
from gpu_workers.adapters.unavailable import AdapterUnavailable
from gpu_workers.engine import AdapterRefused, EngineDied
from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.adapters import AdapterLevel, AdapterSource
from gpu_workers.transport import UnknownWorker
from tests.support.metrics import sample
from tests.support.polling import eventually
from tests.support.workers.adapters.running import Running, Use, running, use_once
from tests.support.workers.adapters.store import (
    AdapterStore,
    make_adapter,
    refuses,
    stalls,
)

A, B, C, D = (make_adapter(number) for number in range(4))
DISK, MEMORY, SLOT = AdapterLevel.DISK, AdapterLevel.MEMORY, AdapterLevel.SLOT


@pytest.fixture
async def worker(dispatch_redis: Redis, cache_folder: Path) -> AsyncIterator[Running]:
    async with running(dispatch_redis, cache_folder) as worker:
        yield worker


@pytest.fixture
async def offered(store: AdapterStore) -> AdapterStore:
    for adapter in (A, B, C, D):
        await store.offer(adapter)
    return store


def plain_files(folder: Path) -> list[Path]:
    """What lies there unsealed."""
    return list(folder.rglob("*.safetensors"))


def _noting(method: Any, names: list[str]) -> Any:
    """The method, which notes whose adapter it was asked for."""

    def noted(cache: AdapterCache, source: AdapterSource) -> Any:
        names.append(source.adapter)
        return method(cache, source)

    return noted


async def test_requests_that_need_an_adapter_at_once_share_its_load(
    worker: Running, offered: AdapterStore
) -> None:
    uses = [Use(worker, A) for _ in range(20)]
    for use in uses:
        await use.begins()
    assert worker.engine.loaded == [A.name]
    assert (worker.engine.loads, offered.asked) == (1, [A.name])
    for use in uses:
        await use.end()
    await use_once(worker, A)
    assert worker.engine.loads == 1


async def test_the_dispatcher_hears_for_how_long_a_load_kept_the_engine_from_its_steps(
    worker: Running, offered: AdapterStore
) -> None:
    worker.engine.stands_still_for = 0.25
    await use_once(worker, A)
    worker.engine.stands_still_for = 0.5
    await use_once(worker, B)
    await use_once(worker, A)
    await eventually(lambda: worker.load_us == {A.name: 250_000, B.name: 500_000})


async def test_what_the_pool_has_no_more_leaves_memory_and_disk_once_nobody_uses_it(
    dispatch_redis: Redis, cache_folder: Path, offered: AdapterStore
) -> None:
    async with running(dispatch_redis, cache_folder, forget_every_seconds=0.02) as worker:
        await use_once(worker, B)
        open_use = Use(worker, A)
        await open_use.begins()
        for adapter in (A, B):
            await offered.withdraw(adapter.name)
        await eventually(lambda: worker.engine.loaded == [A.name])
        await open_use.end()
        await eventually(lambda: worker.engine.loaded == [])
        await eventually(lambda: plain_files(cache_folder) == [])
        with pytest.raises(AdapterUnavailable):
            await use_once(worker, A)


async def test_the_least_recently_used_makes_room_and_never_one_in_use(
    worker: Running, offered: AdapterStore
) -> None:
    first = await Use(worker, A).begins()
    await use_once(worker, B)
    await use_once(worker, C)
    assert worker.engine.loaded == [A.name, C.name]
    await first.end()
    await use_once(worker, D)
    assert worker.engine.loaded == [A.name, D.name]


async def test_where_all_that_are_loaded_are_in_use_a_request_waits_for_one_to_end(
    worker: Running, offered: AdapterStore
) -> None:
    first, second = await Use(worker, A).begins(), await Use(worker, B).begins()
    third = Use(worker, C)
    await eventually(lambda: C.name in offered.asked)
    also_first = await Use(worker, A).begins()
    assert not third.begun.is_set(), "and those that have theirs wait for nobody"
    await first.end()
    await second.end()
    await third.begins()
    assert worker.engine.loaded == [A.name, C.name]
    await also_first.end()
    await third.end()


async def test_a_request_that_is_aborted_stops_waiting_and_takes_no_room(
    worker: Running, offered: AdapterStore
) -> None:
    first, second = await Use(worker, A).begins(), await Use(worker, B).begins()
    third = Use(worker, C)
    await eventually(lambda: C.name in offered.asked)
    third.until.set_result(None)
    await third.begins()
    await third.end()
    await first.end()
    await use_once(worker, D)
    assert worker.engine.loaded == [B.name, D.name]
    await second.end()


async def test_a_prefetch_without_room_is_brought_to_the_disk_once_and_opened_no_more(
    worker: Running, offered: AdapterStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(AdapterCache, "open_cached", _noting(AdapterCache.open_cached, opened))
    uses = [await Use(worker, adapter).begins() for adapter in (A, B)]
    worker.adapters.prefetch(C.name)
    await worker.hears({A: SLOT, B: SLOT, C: DISK})
    del opened[:]
    for number in range(1, 9):
        posts = len(worker.posts)
        worker.adapters.prefetch(C.name)
        await eventually(lambda: len(worker.posts) > posts)  # noqa: B023
        assert worker.posts[-1] == {C.name: DISK}, number
    assert opened == []
    for use in uses:
        await use.end()


async def test_a_prefetch_loads_ahead_and_takes_no_room_from_a_request(
    worker: Running, offered: AdapterStore
) -> None:
    worker.adapters.prefetch(A.name)
    await worker.hears({A: MEMORY})
    first, second = await Use(worker, A).begins(), await Use(worker, B).begins()
    worker.adapters.prefetch(C.name)
    await worker.hears({A: SLOT, B: SLOT, C: DISK})
    assert worker.engine.loaded == [A.name, B.name]
    await second.end()
    worker.adapters.prefetch(D.name)
    await worker.hears({A: SLOT, B: DISK, C: DISK, D: MEMORY})
    await first.end()


async def test_names_that_are_none_prefetch_nothing_and_hold_up_nobody(
    worker: Running, offered: AdapterStore
) -> None:
    for number in range(1000):
        worker.adapters.prefetch(f"../../{number}")
    worker.adapters.prefetch(A.name)
    await worker.hears({A: MEMORY})


async def test_a_load_that_stalls_holds_up_no_other(worker: Running, offered: AdapterStore) -> None:
    released = asyncio.Event()
    offered.answers_with(A, stalls(A.sealed, released))
    stalled = Use(worker, A)
    await eventually(lambda: A.name in offered.asked)
    await use_once(worker, B)
    assert not stalled.begun.is_set()
    released.set()
    await (await stalled.begins()).end()


async def test_an_adapter_that_cannot_be_fetched_is_unavailable_and_then_heals(
    worker: Running, offered: AdapterStore
) -> None:
    offered.answers_with(A, refuses(500), refuses(500))
    with pytest.raises(AdapterUnavailable):
        await use_once(worker, A)
    await use_once(worker, A)
    with pytest.raises(AdapterUnavailable):
        await use_once(worker, make_adapter(9))


async def test_an_adapter_that_the_engine_refuses_costs_one_load(
    worker: Running, offered: AdapterStore
) -> None:
    misfit = make_adapter(5, features=255)
    await offered.offer(misfit)
    for _ in range(3):
        with pytest.raises(AdapterRefused):
            await use_once(worker, misfit)
    assert worker.engine.loads == 1
    await worker.hears({misfit: DISK})
    await use_once(worker, A)


async def test_an_engine_that_dies_of_a_load_is_told_to_who_waits(
    worker: Running, offered: AdapterStore
) -> None:
    worker.engine.fail("killed")
    with pytest.raises(EngineDied):
        await use_once(worker, A)


async def test_levels_are_posted_as_they_change(worker: Running, offered: AdapterStore) -> None:
    await use_once(worker, A)
    await worker.hears({A: SLOT})
    await use_once(worker, B)
    await use_once(worker, C)
    await worker.hears({A: DISK, B: SLOT, C: SLOT})


async def test_more_in_memory_than_slots(
    dispatch_redis: Redis, cache_folder: Path, offered: AdapterStore
) -> None:
    async with running(dispatch_redis, cache_folder, slots=1, in_memory=3) as worker:
        for adapter in (A, B, C):
            await use_once(worker, adapter)
        await worker.hears({A: MEMORY, B: MEMORY, C: SLOT})
        in_slot = await Use(worker, C).begins()
        waits = await Use(worker, A).begins()
        await in_slot.end()
        await waits.end()
        await worker.hears({A: SLOT, B: MEMORY, C: MEMORY})


async def test_a_redis_that_lost_everything_is_told_it_again(
    dispatch_redis: Redis, worker: Running, offered: AdapterStore
) -> None:
    await use_once(worker, A)
    await worker.hears({A: SLOT})
    worker.levels.clear()
    await dispatch_redis.delete(keys.pool_adapter_base("sim"))
    worker.adapters.resync()
    await worker.hears({A: SLOT})
    assert await dispatch_redis.exists(keys.pool_adapter_base("sim"))


@pytest.mark.parametrize("error", [RedisConnectionError("away"), UnknownWorker("who?")], ids=str)
async def test_a_post_that_failed_is_repeated(
    worker: Running, offered: AdapterStore, error: Exception
) -> None:
    worker.fails_with.append(error)
    await use_once(worker, A)
    await eventually(lambda: not worker.fails_with)
    if isinstance(error, UnknownWorker):
        worker.adapters.resync()  # as registering again does
    await worker.hears({A: SLOT})


async def test_a_load_that_failed_is_posted_although_nothing_changed(
    worker: Running, offered: AdapterStore
) -> None:
    """The dispatcher takes an adapter for one that comes as long as it hears nothing."""
    await offered.withdraw(A.name)
    worker.adapters.prefetch(A.name)
    await eventually(lambda: {A.name: None} in worker.posts)


async def test_the_base_is_published_for_validation(dispatch_redis: Redis, worker: Running) -> None:
    async def published() -> bytes:
        found = await dispatch_redis.get(keys.pool_adapter_base("sim"))
        return cast("bytes | None", found) or b""

    base = codec.decode_adapter_base(await eventually(published))
    assert base.model == "sim"
    assert {module.name for module in base.modules} >= {"model.layers.0.self_attn.q_proj"}


async def test_a_restarted_worker_says_what_is_on_its_disk_and_fetches_nothing_again(
    dispatch_redis: Redis, cache_folder: Path, offered: AdapterStore
) -> None:
    async with running(dispatch_redis, cache_folder) as worker:
        await use_once(worker, A)
    async with running(dispatch_redis, cache_folder) as worker:
        await worker.hears({A: DISK})
        await use_once(worker, A)
    assert offered.asked == [A.name]
    assert not list((cache_folder / "workers").iterdir()), "opened files go with their worker"


async def test_metrics_tell_loads_hits_by_level_and_evictions(
    worker: Running, offered: AdapterStore
) -> None:
    def told() -> list[float]:
        return [
            sample(f"penstock_worker_adapter_{name}", model="sim", **labels)
            for name, labels in (
                ("loads_total", {"outcome": "loaded"}),
                ("hits_total", {"level": "store"}),
                ("hits_total", {"level": "disk"}),
                ("hits_total", {"level": "slot"}),
                ("evictions_total", {"level": "memory"}),
                ("load_seconds_count", {"level": "store"}),
            )
        ]

    before = told()
    for adapter in (A, B, C, C, A):
        await use_once(worker, adapter)
    assert [after - earlier for after, earlier in zip(told(), before, strict=True)] == [
        4, 3, 1, 1, 2, 3,
    ]  # fmt: skip


async def test_an_engine_without_adapters_has_no_cache_and_refuses_requests_by_itself(
    dispatch_redis: Redis, cache_folder: Path, offered: AdapterStore
) -> None:
    async with running(dispatch_redis, cache_folder, slots=0, in_memory=0) as worker:
        worker.adapters.prefetch(A.name)
        await use_once(worker, A)
        assert worker.engine.loads == 0
    assert offered.asked == []
    assert not cache_folder.exists()  # noqa: ASYNC240
