"""What a worker keeps at hand though nobody asks for it, and that it starves nobody."""

from pathlib import Path

import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.adapters import AdapterLevel
from tests.support.metrics import sample
from tests.support.polling import eventually
from tests.support.workers.adapters.running import Running, Use, running, use_once
from tests.support.workers.adapters.store import AdapterStore, MadeAdapter, make_adapter, refuses

MADE = [make_adapter(number) for number in range(8)]
A, B, C, D, E, F, G, H = MADE
DISK, MEMORY, SLOT = AdapterLevel.DISK, AdapterLevel.MEMORY, AdapterLevel.SLOT


@pytest.fixture
async def offered(store: AdapterStore) -> AdapterStore:
    for adapter in MADE:
        await store.offer(adapter)
    return store


def level_of(worker: Running, adapter: MadeAdapter) -> AdapterLevel | None:
    return worker.levels.get(adapter.name)


async def hears_of_all(worker: Running) -> None:
    await eventually(lambda: len(worker.levels) == len(MADE))


async def test_what_is_pinned_is_loaded_when_a_worker_starts_and_when_the_pin_comes(
    dispatch_redis: Redis, cache_folder: Path, offered: AdapterStore
) -> None:
    await offered.pin(A)
    async with running(dispatch_redis, cache_folder, slots=1, in_memory=4) as worker:
        await worker.hears({A: MEMORY})
        await offered.pin(A, B)
        await worker.hears({A: MEMORY, B: MEMORY})
        assert sample("penstock_worker_adapters_pinned", model="sim", level="memory") == 2


async def test_others_come_and_go_and_what_is_pinned_stays(
    dispatch_redis: Redis, cache_folder: Path, offered: AdapterStore
) -> None:
    await offered.pin(A, B)
    async with running(dispatch_redis, cache_folder, slots=1, in_memory=4) as worker:
        await worker.hears({A: MEMORY, B: MEMORY})
        for adapter in (C, D, E, F, G, H):
            await use_once(worker, adapter)
        assert {A.name, B.name} <= set(worker.engine.loaded)
        assert worker.engine.loads == 8
        await use_once(worker, A)
        assert worker.engine.loads == 8


async def test_pins_get_half_of_the_memory_and_the_rest_of_them_the_disk(
    dispatch_redis: Redis, cache_folder: Path, offered: AdapterStore
) -> None:
    await offered.pin(*MADE)
    async with running(dispatch_redis, cache_folder, slots=1, in_memory=4) as worker:
        await hears_of_all(worker)
        assert sorted(worker.levels.values()) == [DISK] * 6 + [MEMORY] * 2


async def test_pins_get_nothing_that_the_slots_need(
    dispatch_redis: Redis, cache_folder: Path, offered: AdapterStore
) -> None:
    await offered.pin(A, B)
    async with running(dispatch_redis, cache_folder, slots=3, in_memory=4) as worker:
        await eventually(lambda: sorted(worker.levels.values()) == [DISK, MEMORY])
        uses = [await Use(worker, each).begins() for each in (C, D, E)]
        assert len({A.name, B.name} & set(worker.engine.loaded)) == 1
        for use in uses:
            await use.end()
    async with running(dispatch_redis, cache_folder, slots=4, in_memory=4) as worker:
        await eventually(lambda: {A.name, B.name} <= set(worker.levels))
        assert worker.engine.loaded == []


async def test_a_request_takes_the_room_of_a_pin_rather_than_wait(
    dispatch_redis: Redis, cache_folder: Path, offered: AdapterStore
) -> None:
    await offered.pin(A)
    async with running(dispatch_redis, cache_folder, slots=1, in_memory=2) as worker:
        await worker.hears({A: MEMORY})
        first = await Use(worker, B).begins()
        worker.adapters.prefetch(C.name)
        await eventually(lambda: level_of(worker, C) == DISK)
        assert level_of(worker, A) == MEMORY, "nobody waited for that one"
        second = await Use(worker, D).begins()
        await first.end()
        await second.end()


async def test_each_tenants_first_pin_comes_before_anybodys_second(
    dispatch_redis: Redis, cache_folder: Path, offered: AdapterStore
) -> None:
    """Whoever pins many gets no more of the memory than whoever pins few."""
    greedy = {each.name: place for place, each in enumerate((A, B, C, D, E, F), start=1)}
    await offered.pin(G, H, **greedy)
    async with running(dispatch_redis, cache_folder, slots=1, in_memory=6) as worker:
        await hears_of_all(worker)
        in_memory = {name for name, level in worker.levels.items() if level == MEMORY}
        assert in_memory == {A.name, G.name, H.name}


async def test_whom_one_worker_has_no_room_for_another_may_have(
    dispatch_redis: Redis, tmp_path: Path, offered: AdapterStore
) -> None:
    """The order of equals is another one in each process: nobody is last everywhere, and no choice
    of an adapter's bytes makes it the first."""
    await offered.pin(*MADE)
    chosen = set()
    for number in range(6):
        async with running(dispatch_redis, tmp_path / str(number), slots=1, in_memory=2) as worker:
            await hears_of_all(worker)
            chosen |= set(worker.engine.loaded)
    assert len(chosen) > 1


async def test_what_is_pinned_no_more_makes_room_as_others_do(
    dispatch_redis: Redis, cache_folder: Path, offered: AdapterStore
) -> None:
    await offered.pin(A)
    async with running(dispatch_redis, cache_folder, slots=1, in_memory=2) as worker:
        await worker.hears({A: MEMORY})
        await offered.pin(B)
        await eventually(lambda: level_of(worker, B) == MEMORY)
        await use_once(worker, C)
        assert set(worker.engine.loaded) == {B.name, C.name}
        await dispatch_redis.delete(keys.pool_adapter_pins("sim"))
        await eventually(
            lambda: sample("penstock_worker_adapters_pinned", model="sim", level="memory") == 0
        )
        await use_once(worker, D)
        assert set(worker.engine.loaded) == {C.name, D.name}


async def test_on_disk_what_is_pinned_goes_last_and_has_half_at_most(
    dispatch_redis: Redis, cache_folder: Path, offered: AdapterStore
) -> None:
    size = len(A.sealed)
    await offered.pin(*MADE)
    async with running(
        dispatch_redis, cache_folder, slots=1, in_memory=1, cache_bytes=6 * size
    ) as worker:
        await eventually(lambda: len(worker.levels) == 3)
        pinned = set(worker.levels)
        others = [each for each in MADE if each.name not in pinned]
        for adapter in others:
            await use_once(worker, adapter)
        assert pinned <= set(worker.levels)
        assert sample("penstock_worker_adapters_pinned", model="sim", level="none") == 5


async def test_one_that_cannot_be_had_keeps_no_other_from_being_pinned(
    dispatch_redis: Redis, cache_folder: Path, offered: AdapterStore
) -> None:
    offered.answers_with(A, *[refuses(500)] * 9)
    misfit = make_adapter(9, features=255)
    await offered.offer(misfit)
    await offered.pin(A, misfit, B, **{"../../etc/passwd": 1, "f" * 64: 1})
    async with running(dispatch_redis, cache_folder, slots=1, in_memory=8) as worker:
        await eventually(lambda: level_of(worker, B) == MEMORY)
        await eventually(lambda: level_of(worker, misfit) == DISK)
        await eventually(lambda: offered.asked.count(A.name) == 2)
        await use_once(worker, C)
        assert offered.asked.count(A.name) == 2, "tried again after a while alone"


async def test_a_row_of_pins_that_cannot_be_read_stops_nothing(
    dispatch_redis: Redis, cache_folder: Path, offered: AdapterStore
) -> None:
    await dispatch_redis.set(keys.pool_adapter_pins("sim"), b"junk")
    async with running(dispatch_redis, cache_folder, slots=1, in_memory=2) as worker:
        await use_once(worker, A)
        await offered.pin(B)
        await eventually(lambda: level_of(worker, B) == MEMORY)
