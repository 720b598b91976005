"""What is told of usage although something died: Redis, the worker, the last writes."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from gpu_workers.metrics import WorkerMetrics
from gpu_workers.outbox.calls import UsageCalls
from gpu_workers.outbox.outbox import Outbox
from gpu_workers.outbox.relay import OutboxRelay
from gpu_workers.protocol import codec, functions, keys, stream_fields
from gpu_workers.protocol.redis_errors import is_transient
from gpu_workers.protocol.redis_url import connect_async
from gpu_workers.sim.engine import SimEngine
from gpu_workers.worker import Exit
from inference.redis_functions import LIBRARIES, library_text
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.processes import a_sim_worker
from tests.support.polling import eventually
from tests.support.workers.asking import ENDLESS
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import Steps, running_worker
from tests.support.workers.usage_stream import (
    a_record,
    acknowledge,
    records,
    requeue,
    rows_of_stream,
    wastes,
)


async def load_functions(redis: Redis) -> None:
    for library in LIBRARIES:
        await redis.function_load(library_text(library), replace=True)


@asynccontextmanager
async def relay_of(
    folder: Path, redis_url: str, **grace: float
) -> AsyncIterator[tuple[Outbox, OutboxRelay]]:
    """A relay that takes its turns when the test says so."""
    outbox = Outbox.open(folder, pool="sim")
    redis = connect_async(redis_url, socket_timeout=5)
    calls = UsageCalls(redis, pool="sim", outbox_id=outbox.outbox_id)
    try:
        yield (
            outbox,
            OutboxRelay(outbox, calls, WorkerMetrics("sim"), worker_name="w", **grace),
        )
    finally:
        await redis.aclose()
        await outbox.close()


async def serve_one(redis_url: str, gateway: FakeGateway, folder: Path) -> str:
    """A request from its beginning to its end; its record is then in outbox and stream."""
    async with running_worker(redis_url, SimEngine(step_seconds=0.001), outbox=folder) as running:
        request_id = await gateway.send(make_envelope(max_output_tokens=5))
        await gateway.terminal_of(request_id)
        running.worker.drain()
        assert await running.exit_code() is Exit.DRAINED
    return request_id


async def test_a_record_leaves_the_outbox_with_its_receipt_and_not_before(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway, tmp_path: Path
) -> None:
    await serve_one(sim_redis_url, gateway, tmp_path)
    async with relay_of(tmp_path, sim_redis_url) as (outbox, relay):
        for _ in range(3):
            await relay.tick()
        assert await outbox.count() == 2, "the record, and the engine's counter"
        assert len(await records(dispatch_redis)) == 1, "told once, however often it is asked after"
        assert await acknowledge(dispatch_redis) == 2
        await relay.tick()
        assert await outbox.count() == 0
        await relay.tick()
    assert await rows_of_stream(dispatch_redis) == []


async def test_what_an_emptied_redis_has_lost_is_resent_once(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway, tmp_path: Path
) -> None:
    async with running_worker(
        sim_redis_url, SimEngine(step_seconds=0.001), outbox=tmp_path
    ) as running:
        request_id = await gateway.send(make_envelope(max_output_tokens=5))
        await gateway.terminal_of(request_id)
        before = await records(dispatch_redis)
        await dispatch_redis.flushdb()

        async def has_told() -> bool:
            return bool(await dispatch_redis.sismember(keys.pool_workers_resynced("sim"), "w"))

        await eventually(has_told)
        assert await records(dispatch_redis) == before
        assert before[0].request_id == request_id
        await acknowledge(dispatch_redis)

        async def is_empty() -> bool:
            return await running.outbox.count() == 0

        await eventually(is_empty)


async def test_the_last_writes_that_a_failover_lost_are_resent(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway, tmp_path: Path
) -> None:
    """A replica that had not heard of an entry gives its id out again, to another's entry."""
    await serve_one(sim_redis_url, gateway, tmp_path)
    [(stream_id, _), _counter] = await rows_of_stream(dispatch_redis)
    await dispatch_redis.delete(keys.pool_usage("sim"))
    await dispatch_redis.xadd(keys.pool_usage("sim"), {"record": b"another's"}, id=stream_id)
    async with relay_of(tmp_path, sim_redis_url) as (_, relay):
        await relay.tick()
        await relay.tick()
    others, own, _tally = await rows_of_stream(dispatch_redis)
    assert others[1] == {b"record": b"another's"}
    assert codec.decode_usage_entry(own[1][b"record"]).usage.completion_tokens == 5


async def test_a_receipt_whose_answer_is_lost_costs_one_repetition(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway, tmp_path: Path
) -> None:
    await serve_one(sim_redis_url, gateway, tmp_path)
    async with relay_of(tmp_path, sim_redis_url) as (outbox, relay):
        await acknowledge(dispatch_redis)
        await dispatch_redis.delete(keys.pool_receipts("sim", outbox.outbox_id))
        await relay.tick()
        assert len(await records(dispatch_redis)) == 1
        await acknowledge(dispatch_redis)
        await relay.tick()
        assert await outbox.count() == 0


async def test_a_worker_that_is_killed_before_finish_is_finished_from_its_outbox(
    dispatch_redis: Redis, dispatch_redis_url: str, tmp_path: Path
) -> None:
    """kill -9 of a real process while its record is on disk and Redis cannot take it yet; its
    gateway is gone too, so that nobody else goes on with the request."""
    gateway = FakeGateway(dispatch_redis, pool=POOL)
    await gateway.appear()
    request = make_envelope(ENDLESS, max_output_tokens=12, pool=POOL, model=MODEL)
    async with a_sim_worker(dispatch_redis_url, outbox=tmp_path) as process:
        await gateway.send(request)
        await gateway.delta_of(request.request_id)
        await dispatch_redis.function_delete(functions.DISPATCH_LIBRARY)
        await eventually(lambda: _provisional(tmp_path), timeout_seconds=10)
        process.kill()
        await process.wait()
    await load_functions(dispatch_redis)
    await gateway.vanish()
    usage = keys.pool_usage(POOL)
    assert await dispatch_redis.xlen(usage) == 0
    async with a_sim_worker(dispatch_redis_url, outbox=tmp_path):

        async def is_told() -> bool:
            return bool(await dispatch_redis.xlen(usage))

        await eventually(is_told, timeout_seconds=10)
    [(_, fields)] = await rows_of_stream(dispatch_redis, POOL)
    entry = codec.decode_usage_entry(fields[b"record"])
    assert (entry.request_id, entry.usage.completion_tokens) == (request.request_id, 12)


async def test_a_worker_that_is_killed_after_finish_has_told_it_once(
    dispatch_redis: Redis, dispatch_redis_url: str, tmp_path: Path
) -> None:
    gateway = FakeGateway(dispatch_redis, pool=POOL)
    await gateway.appear()
    request = make_envelope(ENDLESS, max_output_tokens=3, pool=POOL, model=MODEL)
    async with a_sim_worker(dispatch_redis_url, outbox=tmp_path) as process:
        await gateway.send(request)
        await gateway.terminal_of(request.request_id)
        process.kill()
        await process.wait()
    async with a_sim_worker(dispatch_redis_url, outbox=tmp_path):

        async def is_settled() -> bool:
            return not _provisional(tmp_path)

        await eventually(is_settled, timeout_seconds=10)
    assert await dispatch_redis.xlen(keys.pool_usage(POOL)) == 1


def _provisional(folder: Path) -> bool:
    """Whether another process' outbox has a provisional row on disk."""
    with sqlite3.connect(f"file:{folder / 'outbox.sqlite3'}?mode=ro", uri=True) as database:
        rows = database.execute("SELECT count(*) FROM entries WHERE NOT is_settled").fetchone()
    database.close()
    return bool(rows[0])


@pytest.fixture
async def left_behind(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway, tmp_path: Path
) -> str:
    """The request of a worker that died between its provisional row and `finish`; it generated 9
    tokens of which 4 had been read when it was taken for dead."""
    request = make_envelope(ENDLESS, max_output_tokens=9)
    async with running_worker(
        sim_redis_url, SimEngine(sleep=Steps(granted=4)), outbox=tmp_path / "other"
    ):
        await gateway.send(request)
        await gateway.delta_of(request.request_id)
    outbox = Outbox.open(tmp_path / "left", pool="sim")
    entry = a_record(request.request_id, completion_tokens=9)
    await outbox.put(
        stream_fields.USAGE_FIELD, codec.encode(entry), gateway_id="gateway-1", resumed=0
    )
    await outbox.close()
    return request.request_id


async def test_what_went_on_elsewhere_is_waste_as_far_as_nobody_goes_on_from_it(
    dispatch_redis: Redis, sim_redis_url: str, left_behind: str, tmp_path: Path
) -> None:
    await requeue(dispatch_redis, left_behind, resumed=4)
    async with relay_of(tmp_path / "left", sim_redis_url) as (outbox, relay):
        await relay.tick()
        await relay.tick()
        assert await outbox.count() == 1
    assert await records(dispatch_redis) == []
    [waste] = await wastes(dispatch_redis)
    assert (waste.request_id, waste.attempt) == (left_behind, 1)
    assert (waste.completion_tokens, waste.reason) == (5, "worker_lost")


async def test_a_request_whose_gateway_lives_is_left_to_it_for_a_while(
    dispatch_redis: Redis, sim_redis_url: str, left_behind: str, tmp_path: Path
) -> None:
    async with relay_of(tmp_path / "left", sim_redis_url) as (_, relay):
        await relay.tick()
        assert await rows_of_stream(dispatch_redis) == []
    async with relay_of(tmp_path / "left", sim_redis_url, gateway_grace_seconds=0) as (_, relay):
        await relay.tick()
    [entry] = await records(dispatch_redis)
    assert entry.usage.completion_tokens == 9


async def test_what_redis_lost_is_recorded_once_nobody_can_be_expected_to_bring_it_back(
    dispatch_redis: Redis, sim_redis_url: str, left_behind: str, tmp_path: Path
) -> None:
    await dispatch_redis.flushdb()
    async with relay_of(tmp_path / "left", sim_redis_url, gateway_grace_seconds=0) as (_, relay):
        await relay.tick()
        assert await rows_of_stream(dispatch_redis) == []
    async with relay_of(tmp_path / "left", sim_redis_url, lost_grace_seconds=-1) as (_, relay):
        await relay.tick()
        await relay.tick()
    [entry] = await records(dispatch_redis)
    assert entry.request_id == left_behind


async def test_a_worker_waits_for_the_control_plane_to_load_its_functions(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway, tmp_path: Path
) -> None:
    await serve_one(sim_redis_url, gateway, tmp_path)
    await dispatch_redis.delete(keys.pool_usage("sim"))
    await dispatch_redis.function_delete(functions.DISPATCH_LIBRARY)
    async with relay_of(tmp_path, sim_redis_url) as (_, relay):
        with pytest.raises(ResponseError) as failed:
            await relay.tick()
        assert is_transient(failed.value)
        await load_functions(dispatch_redis)
        relay.resync()
        await relay.tick()
    assert len(await rows_of_stream(dispatch_redis)) == 2


async def test_a_row_that_cannot_be_read_is_delivered_as_it_is(
    dispatch_redis: Redis, sim_redis_url: str, tmp_path: Path
) -> None:
    outbox = Outbox.open(tmp_path, pool="sim")
    await outbox.put(stream_fields.USAGE_FIELD, b"damaged", gateway_id="", resumed=0)
    await outbox.close()
    async with relay_of(tmp_path, sim_redis_url) as (_, relay):
        await relay.tick()
        await relay.tick()
    [(_, fields)] = await rows_of_stream(dispatch_redis)
    assert fields[b"record"] == b"damaged", "the consumer keeps it in quarantine"
