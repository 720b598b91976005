"""The usage stream is bounded while nobody collects: records stay on their worker's disk, and come
once there is room, each once."""

from pathlib import Path

import pytest
from redis import Redis as SyncRedis
from redis.asyncio import Redis

from gpu_workers.outbox import relay
from gpu_workers.protocol import codec, functions, keys
from gpu_workers.protocol.usage import UsageEntry
from gpu_workers.sim.engine import SimEngine
from inference.lua_constants import MOST_USAGE_ENTRIES, UNSHARED_USAGE_ENTRIES
from inference.redis_functions import DISPATCH, library_text
from tests.support.dispatch.virtual_pool import Ask, VirtualPool
from tests.support.polling import eventually
from tests.support.servers import TestServers
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import running_worker
from tests.support.workers.usage_stream import acknowledge, records, rows_of_stream

ROOM = 3
REQUESTS = 11


def with_room(entries: int, unshared: int = UNSHARED_USAGE_ENTRIES) -> str:
    """The dispatch functions, with a stream of so many entries of outboxes, and so many others."""
    library = library_text(DISPATCH)
    for name, value, other in (
        ("MOST_USAGE_ENTRIES", MOST_USAGE_ENTRIES, entries),
        ("UNSHARED_USAGE_ENTRIES", UNSHARED_USAGE_ENTRIES, unshared),
    ):
        line = f"local {name} = {value}\n"
        assert library.count(line) == 1
        library = library.replace(line, f"local {name} = {other}\n")
    return library


async def serve(gateway: FakeGateway, requests: int) -> set[str]:
    """So many requests, each to the end that its client sees."""
    sent = [await gateway.send(make_envelope(max_output_tokens=2)) for _ in range(requests)]
    for request_id in sent:
        await gateway.terminal_of(request_id)
    return set(sent)


async def is_withheld(redis: Redis) -> bool:
    return bool(await redis.exists(keys.pool_usage_withheld("sim")))


async def test_what_the_stream_has_no_room_for_waits_in_the_outbox_and_comes_once(
    dispatch_redis: Redis,
    sim_redis_url: str,
    gateway: FakeGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "TICK_SECONDS", 0.05)
    await dispatch_redis.function_load(with_room(ROOM), replace=True)
    engine = SimEngine(step_seconds=0.001)
    async with running_worker(sim_redis_url, engine, outbox=tmp_path) as running:
        sent = await serve(gateway, REQUESTS)
        assert len(await rows_of_stream(dispatch_redis)) == ROOM
        assert await running.outbox.count() == REQUESTS
        assert await is_withheld(dispatch_redis)
        collected: list[UsageEntry] = []
        while len(collected) < REQUESTS:
            await eventually(lambda: rows_of_stream(dispatch_redis))
            page = await records(dispatch_redis)
            assert len(page) <= ROOM
            collected += page
            assert await acknowledge(dispatch_redis) == len(page)
        assert sorted(each.request_id for each in collected) == sorted(sent)

        async def is_over() -> bool:
            return not (await running.outbox.count() or await is_withheld(dispatch_redis))

        await eventually(is_over)
        assert await rows_of_stream(dispatch_redis) == []


async def test_what_was_withheld_comes_from_the_next_process_of_its_outbox(
    dispatch_redis: Redis,
    sim_redis_url: str,
    gateway: FakeGateway,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(relay, "TICK_SECONDS", 0.05)
    await dispatch_redis.function_load(with_room(ROOM), replace=True)
    async with running_worker(sim_redis_url, SimEngine(step_seconds=0.001), outbox=tmp_path):
        sent = await serve(gateway, REQUESTS)
    resynced = keys.pool_workers_resynced("sim")
    await dispatch_redis.delete(resynced)
    async with running_worker(sim_redis_url, SimEngine(), "another", outbox=tmp_path) as running:
        collected: set[str] = set()
        while len(collected) < REQUESTS:
            assert not await dispatch_redis.exists(resynced), "before all of it is there"
            await eventually(lambda: rows_of_stream(dispatch_redis))
            collected |= {each.request_id for each in await records(dispatch_redis)}
            await acknowledge(dispatch_redis)
        assert collected == sent

        async def has_told() -> bool:
            return bool(await dispatch_redis.sismember(resynced, "another"))

        await eventually(has_told)

        async def is_empty() -> bool:
            return not await running.outbox.count()

        await eventually(is_empty)


async def test_a_repeated_finish_that_was_withheld_is_accepted_and_recorded_once(
    dispatch_redis: Redis, gateway: FakeGateway, sim_redis_url: str, tmp_path: Path
) -> None:
    """Its answer got lost."""
    await dispatch_redis.function_load(with_room(0), replace=True)
    async with running_worker(
        sim_redis_url, SimEngine(step_seconds=0.001), outbox=tmp_path
    ) as running:
        await serve(gateway, 1)
        [seq] = [seq for seq, _ in await running.outbox.settled_after(0, 10)]
        [row] = await running.outbox.entries([seq])
        entry = codec.decode_usage_entry(row.record)
        arguments = (entry.request_id, 1, row.record, 0, 2, 0, running.outbox.origin(seq), "")
        for _ in range(2):
            answer = await dispatch_redis.fcall(
                functions.FINISH, 1, keys.pool_prefix("sim"), *arguments
            )
            assert answer == [1, b""]
    assert await rows_of_stream(dispatch_redis) == []


def test_what_is_in_no_outbox_always_finds_room_and_newcomers_wait_for_it(
    test_servers: TestServers,
) -> None:
    with SyncRedis.from_url(test_servers.dispatch_redis.url) as redis:
        redis.flushall()
        pool = VirtualPool(redis, library=with_room(2, unshared=3))
        stream = keys.pool_usage(pool.name)
        for number in range(6):
            assert pool.enqueue(Ask(request_id=f"r{number}", tenant="acme")) == "queued"
        for number in range(5):
            assert pool.finish(f"r{number}", 0)
        assert redis.xlen(stream) == 5
        assert pool.ask(Ask(request_id="new", tenant="acme")) == [b"usage_full"]
        assert pool.finish("r5", 0), "what was admitted is on record all the same"
        assert redis.xlen(stream) == 6
        redis.xtrim(stream, maxlen=4, approximate=False)
        assert pool.enqueue(Ask(request_id="new", tenant="acme")) == "queued"
