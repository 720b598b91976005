"""A whole worker whose requests name adapters, over a real Redis and real dispatch functions."""

import asyncio
import errno
import json
import os
from pathlib import Path
from typing import BinaryIO, cast

import pytest
from msgspec import structs
from redis.asyncio import Redis

from gpu_workers.adapters.cache import AdapterCache
from gpu_workers.engine import LoadableAdapter
from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.adapters import AdapterLevel, AdapterSource
from gpu_workers.protocol.messages import Envelope, Outcome, WorkerState
from gpu_workers.sim.engine import SimEngine
from gpu_workers.worker import Exit
from tests.gpu_workers.adapters.conftest import Serving
from tests.support.polling import eventually
from tests.support.workers.adapters.store import (
    AdapterStore,
    MadeAdapter,
    make_adapter,
    refuses,
    stalls,
)
from tests.support.workers.asking import ENDLESS
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import RunningWorker, running_worker
from tests.support.workers.worker_process import worker_process

SUPPORT = make_adapter(1)
OTHER = make_adapter(2)


def envelope_of(adapter: MadeAdapter | None) -> Envelope:
    envelope = make_envelope(max_output_tokens=8)
    if adapter is None:
        return envelope
    return structs.replace(
        envelope, adapter=adapter.name, adapter_name="acme/support", adapter_version=3
    )


def an_engine(*, in_memory: int = 2) -> SimEngine:
    return SimEngine(step_seconds=0.001, adapter_slots=2, adapters_in_memory=in_memory)


def fill_disk(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Have a cache's disk take nothing more."""
    begin = AdapterCache.begin

    def refused(cache: AdapterCache, source: AdapterSource) -> tuple[Path, BinaryIO]:
        if cache.folder == folder.resolve():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return begin(cache, source)

    monkeypatch.setattr(AdapterCache, "begin", refused)


def text_of(gateway: FakeGateway, request_id: str) -> str:
    events = [json.loads(chunk) for delta in gateway.deltas[request_id] for chunk in delta.chunks]
    choices = [choice for event in events for choice in event["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


async def ready_workers(redis: Redis) -> set[str]:
    stored = cast("list[bytes]", await redis.hvals(keys.pool_workers("sim")))
    infos = [codec.decode_worker_info(each) for each in stored]
    return {info.worker_id for info in infos if info.state is WorkerState.READY}


async def level_of(redis: Redis, running: RunningWorker, adapter: MadeAdapter) -> int | None:
    key = keys.pool_worker_levels("sim", running.worker_id)
    found = cast("bytes | None", await redis.hget(key, adapter.name))
    return None if found is None else int(found)


async def test_a_request_gets_its_adapters_answer_and_its_public_name_on_record(
    serving: Serving, gateway: FakeGateway, store: AdapterStore
) -> None:
    await store.offer(SUPPORT)
    async with serving(an_engine()):
        asked = [await gateway.send(envelope_of(each)) for each in (SUPPORT, None)]
        for request_id in asked:
            assert (await gateway.terminal_of(request_id)).outcome is Outcome.COMPLETED
    adapted, base = (text_of(gateway, request_id) for request_id in asked)
    assert adapted != base
    entries = {entry.request_id: entry for entry in await gateway.usage_entries()}
    assert [(entries[each].adapter, entries[each].adapter_version) for each in asked] == [
        ("acme/support", 3),
        ("", 0),
    ]


async def test_an_adapter_that_is_nowhere_ends_its_request_alone(
    serving: Serving, gateway: FakeGateway, store: AdapterStore
) -> None:
    await store.offer(SUPPORT)
    # To the prefetch and to the request, each of which asks twice.
    store.answers_with(SUPPORT, *[refuses(403)] * 4)
    async with serving(an_engine()):
        for adapter in (SUPPORT, OTHER):
            terminal = await gateway.terminal_of(await gateway.send(envelope_of(adapter)))
            assert terminal.outcome is Outcome.FAILED
            assert terminal.error is not None
            assert terminal.error.code == "adapter_unavailable"
            assert (terminal.error.status, terminal.error.should_retry) == (503, True)
            assert terminal.usage.completion_tokens == 0
            assert adapter.name not in terminal.error.message
        for again in (SUPPORT, None):
            terminal = await gateway.terminal_of(await gateway.send(envelope_of(again)))
            assert terminal.outcome is Outcome.COMPLETED


async def test_a_worker_without_room_on_its_disk_gives_requests_to_one_that_has_it(
    sim_redis_url: str,
    gateway: FakeGateway,
    store: AdapterStore,
    cache_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It has the most slots, and so would draw all that need what it has not."""
    full, roomy = cache_folder / "full", cache_folder / "roomy"
    fill_disk(monkeypatch, full)
    adapters = [make_adapter(number) for number in range(6)]
    for adapter in adapters:
        await store.offer(adapter)
    wide = SimEngine(step_seconds=0.001, slots=64, adapter_slots=2, adapters_in_memory=2)
    async with running_worker(sim_redis_url, wide, adapter_cache=full) as first:
        await first.ready()
        terminal = await gateway.terminal_of(await gateway.send(envelope_of(SUPPORT)))
        assert terminal.error is not None, "there is nobody else"
        assert terminal.error.code == "adapter_unavailable"
        async with running_worker(
            sim_redis_url, an_engine(), "roomy", adapter_cache=roomy
        ) as second:
            await second.ready()
            asked = [await gateway.send(envelope_of(each)) for each in (*adapters, None)]
            for request_id in asked:
                terminal = await gateway.terminal_of(request_id, seconds=20)
                assert terminal.outcome is Outcome.COMPLETED
    entries = {entry.request_id: entry for entry in await gateway.usage_entries()}
    workers = [entries[request_id].worker_id for request_id in asked]
    assert set(workers[:-1]) == {second.worker_id}


async def test_a_request_whose_store_is_away_for_one_worker_is_answered_by_another(
    sim_redis_url: str, gateway: FakeGateway, store: AdapterStore, cache_folder: Path
) -> None:
    """As it has the adapter on its disk."""
    await store.offer(SUPPORT)
    cut, roomy = cache_folder / "cut", cache_folder / "roomy"
    wide = SimEngine(step_seconds=0.001, slots=64, adapter_slots=2, adapters_in_memory=2)
    async with running_worker(sim_redis_url, wide, adapter_cache=cut) as first:
        await first.ready()
        # To the prefetch and to the request, each of which asks twice.
        store.answers_with(SUPPORT, *[refuses(503)] * 4)
        async with running_worker(
            sim_redis_url, an_engine(), "roomy", adapter_cache=roomy
        ) as second:
            await second.ready()
            terminal = await gateway.terminal_of(await gateway.send(envelope_of(SUPPORT)))
    assert terminal.outcome is Outcome.COMPLETED
    assert terminal.attempt == 2
    entries = await gateway.usage_entries()
    assert [each.worker_id for each in entries] == [second.worker_id], "and is on record once"


async def test_an_adapter_that_the_engine_refuses_is_not_to_be_asked_for_again(
    serving: Serving, gateway: FakeGateway, store: AdapterStore
) -> None:
    misfit = make_adapter(features=255)
    await store.offer(misfit)
    async with serving(an_engine()):
        terminal = await gateway.terminal_of(await gateway.send(envelope_of(misfit)))
        assert terminal.error is not None
        assert (terminal.error.code, terminal.error.should_retry) == ("adapter_refused", False)
        terminal = await gateway.terminal_of(await gateway.send(envelope_of(None)))
        assert terminal.outcome is Outcome.COMPLETED


async def test_others_stream_while_an_adapter_is_fetched_and_a_client_may_leave_meanwhile(
    serving: Serving, gateway: FakeGateway, store: AdapterStore
) -> None:
    released = asyncio.Event()
    await store.offer(SUPPORT)
    store.answers_with(SUPPORT, stalls(SUPPORT.sealed, released))
    async with serving(an_engine()):
        waiting, leaving = [await gateway.send(envelope_of(SUPPORT)) for _ in range(2)]
        await eventually(lambda: SUPPORT.name in store.asked)
        terminal = await gateway.terminal_of(await gateway.send(envelope_of(None)))
        assert terminal.outcome is Outcome.COMPLETED
        await gateway.cancel(leaving)
        assert waiting not in gateway.terminals
        released.set()
        assert (await gateway.terminal_of(waiting)).outcome is Outcome.COMPLETED
        assert leaving not in gateway.deltas


async def test_a_drain_waits_for_no_store_longer_than_for_anything(
    sim_redis_url: str, gateway: FakeGateway, store: AdapterStore, cache_folder: Path
) -> None:
    never = asyncio.Event()
    await store.offer(SUPPORT)
    store.answers_with(SUPPORT, stalls(SUPPORT.sealed, never))
    async with running_worker(
        sim_redis_url, an_engine(), adapter_cache=cache_folder, drain_seconds=0.05
    ) as running:
        await running.ready()
        request_id = await gateway.send(envelope_of(SUPPORT))
        await eventually(lambda: SUPPORT.name in store.asked)
        running.worker.drain()
        assert await running.exit_code() is Exit.DRAINED
        assert not list((cache_folder / "workers").iterdir())
    never.set()
    async with running_worker(sim_redis_url, an_engine(), adapter_cache=cache_folder):
        terminal = await gateway.terminal_of(request_id)
    assert terminal.outcome is Outcome.COMPLETED, "by another worker"


async def test_a_prefetch_of_the_inbox_warms(
    serving: Serving, dispatch_redis: Redis, store: AdapterStore
) -> None:
    await store.offer(SUPPORT)
    async with serving(an_engine()) as running:
        inbox = keys.pool_inbox("sim", running.worker_id)
        await dispatch_redis.rpush(inbox, f"prefetch {SUPPORT.name}\n".encode())

        async def warm() -> bool:
            return await level_of(dispatch_redis, running, SUPPORT) == AdapterLevel.MEMORY

        await eventually(warm)


async def test_a_worker_whose_redis_lost_everything_posts_again_what_it_has(
    serving: Serving, dispatch_redis: Redis, gateway: FakeGateway, store: AdapterStore
) -> None:
    await store.offer(SUPPORT)
    async with serving(an_engine()) as running:
        await gateway.terminal_of(await gateway.send(envelope_of(SUPPORT)))

        async def told() -> bool:
            has_base = await dispatch_redis.exists(keys.pool_adapter_base("sim"))
            level = await level_of(dispatch_redis, running, SUPPORT)
            return bool(has_base) and level == AdapterLevel.SLOT

        await eventually(told)
        await dispatch_redis.flushdb()
        await eventually(told)


async def test_a_cache_that_cannot_be_opened_stops_a_start_that_needs_it(
    sim_redis_url: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    cache = tmp_path / "file" / "cache"
    async with running_worker(sim_redis_url, an_engine(), adapter_cache=cache) as running:
        assert await running.exit_code() is Exit.START_FAILED
    async with running_worker(sim_redis_url, SimEngine(), adapter_cache=cache) as running:
        await running.ready()


class Meddled(SimEngine):
    """Somebody replaces the cached adapter between its check and its load."""

    def __init__(self, folder: Path) -> None:
        super().__init__(step_seconds=0.001, adapter_slots=2, adapters_in_memory=2)
        self._folder = folder

    async def load_adapter(self, adapter: LoadableAdapter) -> None:
        path = self._folder / "sealed" / adapter.name
        path.unlink()
        path.write_bytes(OTHER.sealed)
        await super().load_adapter(adapter)


async def test_a_file_swapped_between_check_and_load_changes_no_answer(
    serving: Serving, gateway: FakeGateway, store: AdapterStore, cache_folder: Path
) -> None:
    await store.offer(SUPPORT)
    texts = []
    for engine in (an_engine(), Meddled(cache_folder), an_engine()):
        async with serving(engine):
            request_id = await gateway.send(envelope_of(SUPPORT))
            await gateway.terminal_of(request_id)
            texts.append(text_of(gateway, request_id))
    assert len(set(texts)) == 1


async def test_many_adapters_go_through_a_small_memory_and_each_answers_as_itself(
    serving: Serving, gateway: FakeGateway, store: AdapterStore
) -> None:
    """Whatever others ask for meanwhile: no request gets another's adapter, nor the base."""
    adapters = [make_adapter(number) for number in range(40)]
    for adapter in adapters:
        await store.offer(adapter)
    async with serving(an_engine(in_memory=4)):
        base = await gateway.send(structs.replace(make_envelope(ENDLESS), max_output_tokens=100))
        asked = [
            (number, await gateway.send(envelope_of(adapters[number])))
            for _ in range(3)
            for number in range(len(adapters))
        ]
        for _, request_id in asked:
            terminal = await gateway.terminal_of(request_id, seconds=30)
            assert terminal.outcome is Outcome.COMPLETED
        assert (await gateway.terminal_of(base)).outcome is Outcome.COMPLETED
    texts: dict[int, set[str]] = {}
    for number, request_id in asked:
        texts.setdefault(number, set()).add(text_of(gateway, request_id))
    assert all(len(each) == 1 for each in texts.values())
    assert len(set.union(*texts.values())) == len(adapters)


@pytest.mark.stack
async def test_a_worker_that_is_killed_in_the_middle_of_a_load_is_succeeded_by_one_that_loads(
    dispatch_redis: Redis,
    sim_redis_url: str,
    gateway: FakeGateway,
    store: AdapterStore,
    cache_folder: Path,
) -> None:
    released = asyncio.Event()
    await store.offer(SUPPORT)
    store.answers_with(SUPPORT, stalls(SUPPORT.sealed, released))
    settings = {"name": "w", "adapter_slots": "2", "adapter_cache": str(cache_folder)}
    folder = cache_folder.parent

    def fetched() -> list[Path]:
        return list(cache_folder.glob("workers/*/*-fetched"))

    async with worker_process(sim_redis_url, folder, **settings) as killed:
        await gateway.send(envelope_of(SUPPORT))
        await eventually(lambda: SUPPORT.name in store.asked, timeout_seconds=20)
        await eventually(fetched)
        lost = await ready_workers(dispatch_redis)
        killed.kill()
        await killed.wait()
    released.set()
    async with worker_process(sim_redis_url, folder, **settings):

        async def has_successor() -> bool:
            return bool(await ready_workers(dispatch_redis) - lost)

        await eventually(has_successor, timeout_seconds=20)
        request_id = await gateway.send(envelope_of(SUPPORT))
        terminal = await gateway.terminal_of(request_id, seconds=20)
        assert terminal.outcome is Outcome.COMPLETED
    assert fetched() == []
    assert store.asked == [SUPPORT.name] * 2
