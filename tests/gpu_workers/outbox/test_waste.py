"""Billed and wasted tokens are what the engine has generated, by the engine's own count."""

import asyncio
import random
from pathlib import Path

from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Outcome
from gpu_workers.protocol.usage import UsageEntry, WasteEntry
from gpu_workers.sim.engine import SimEngine
from gpu_workers.worker import Exit
from tests.support.polling import eventually
from tests.support.workers.asking import ENDLESS
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import Steps, running_worker
from tests.support.workers.stream_reader import StreamReader, waiting_envelope
from tests.support.workers.usage_stream import records, requeue, wastes


def billed(entries: list[UsageEntry]) -> int:
    return sum(entry.usage.completion_tokens for entry in entries)


def wasted(entries: list[UsageEntry], others: list[WasteEntry]) -> int:
    own = sum(entry.wasted_tokens for entry in entries)
    return own + sum(entry.completion_tokens for entry in others)


async def adds_up(redis: Redis, engines: list[SimEngine]) -> bool:
    entries, others = await records(redis), await wastes(redis)
    generated = sum(engine.load().generated_tokens for engine in engines)
    return billed(entries) + wasted(entries, others) == generated


class EngineThatHearsLate(SimEngine):
    """It goes on generating until the test lets it abort."""

    def __init__(self, *, sleep: Steps) -> None:
        super().__init__(sleep=sleep)
        self.is_asked = asyncio.Event()
        self.may_abort = asyncio.Event()

    async def abort(self, request_id: str) -> None:
        self.is_asked.set()
        await self.may_abort.wait()
        await super().abort(request_id)


async def test_what_is_generated_after_its_client_has_left_is_not_billed(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps(granted=3)
    engine = EngineThatHearsLate(sleep=steps)
    async with running_worker(sim_redis_url, engine):
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=50))
        await StreamReader(gateway, request_id).wait_for(1, 3)
        await gateway.cancel(request_id)
        await engine.is_asked.wait()
        steps.grant(2)
        await StreamReader(gateway, request_id).wait_for(1, 5)
        engine.may_abort.set()
        terminal = await gateway.terminal_of(request_id)
    [entry] = await records(dispatch_redis)
    assert entry.outcome is Outcome.CANCELLED
    assert entry.usage == terminal.usage
    assert (entry.usage.completion_tokens, entry.wasted_tokens) == (3, 2)
    assert entry.waste_reason == "after_cancel"
    assert await adds_up(dispatch_redis, [engine])


async def test_a_stale_attempt_tells_what_nobody_goes_on_from(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    """Its gateway took the worker for dead after 4 tokens; it generates 10 all the same."""
    steps = Steps(granted=4)
    engine = SimEngine(sleep=steps)
    async with running_worker(sim_redis_url, engine) as running:
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=10))
        await StreamReader(gateway, request_id).wait_for(1, 4)
        await requeue(dispatch_redis, request_id, resumed=4)
        # Given to nobody else: this worker is excluded, and there is no other.
        steps.grant(100)
        await eventually(lambda: not running.worker.open_requests)

        async def is_told() -> bool:
            return bool(await wastes(dispatch_redis))

        await eventually(is_told)
    [waste] = await wastes(dispatch_redis)
    assert (waste.completion_tokens, waste.reason) == (6, "worker_lost")
    assert await records(dispatch_redis) == []


async def test_a_preempted_attempt_wastes_only_what_was_not_sent(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    envelope = make_envelope(ENDLESS, max_output_tokens=20, service_class="batch")
    steps = Steps()
    engine = SimEngine(slots=1, sleep=steps)
    async with running_worker(sim_redis_url, engine) as running:
        await running.ready()
        request_id = await gateway.send(envelope)
        steps.grant(5)
        await StreamReader(gateway, request_id).wait_for(1, 5)
        quick = await gateway.send(make_envelope(max_output_tokens=3))
        await waiting_envelope(dispatch_redis, request_id)
        steps.grant(1000)
        await gateway.terminal_of(quick)
        await gateway.terminal_of(request_id)
        assert await adds_up(dispatch_redis, [engine])
    assert billed(await records(dispatch_redis)) == 23


async def test_a_fenced_worker_tells_what_it_had_generated(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway, tmp_path: Path
) -> None:
    first_engine, steps = SimEngine(sleep=Steps(granted=4)), Steps(granted=10_000)
    second_engine = SimEngine(sleep=steps)
    async with running_worker(sim_redis_url, first_engine, outbox=tmp_path) as first:
        await first.ready()
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=12))
        reader = StreamReader(gateway, request_id)
        await reader.wait_for(1, 4)
        async with running_worker(sim_redis_url, second_engine) as second:
            assert await first.exit_code() is Exit.FENCED
            await second.ready()
            await requeue(dispatch_redis, request_id, resumed=3)
            await gateway.terminal_of(request_id)
            second.worker.drain()
            assert await second.exit_code() is Exit.DRAINED
    async with running_worker(sim_redis_url, SimEngine(), outbox=tmp_path):

        async def is_told() -> bool:
            return bool(await wastes(dispatch_redis))

        await eventually(is_told)
    [waste] = await wastes(dispatch_redis)
    assert (waste.attempt, waste.completion_tokens) == (1, 1)
    assert await adds_up(dispatch_redis, [first_engine, second_engine])


async def test_cancellations_at_random_tokens_leave_nothing_uncounted(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    engine = SimEngine(step_seconds=0.002)
    draw = random.Random(5)
    async with running_worker(sim_redis_url, engine) as running:
        await running.ready()

        async def ask_and_leave() -> None:
            request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=40))
            await StreamReader(gateway, request_id).wait_for(1, draw.randint(1, 30))
            await gateway.cancel(request_id)

        await asyncio.gather(*(ask_and_leave() for _ in range(30)))
        await eventually(lambda: not running.worker.open_requests)
    entries = await records(dispatch_redis)
    assert len({entry.request_id for entry in entries}) == len(entries) == 30
    assert await adds_up(dispatch_redis, [engine])


async def test_a_record_has_its_inter_token_latency(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    async with running_worker(sim_redis_url, SimEngine(step_seconds=0.01)):
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=20))
        await gateway.terminal_of(request_id)
        lone = await gateway.send(make_envelope(ENDLESS, max_output_tokens=1))
        await gateway.terminal_of(lone)
    first, second = await records(dispatch_redis)
    assert first.itl_p50_ms is not None
    assert first.itl_p95_ms is not None
    assert 9 <= first.itl_p50_ms <= first.itl_p95_ms
    assert (second.itl_p50_ms, second.itl_p95_ms) == (None, None)


async def test_a_full_disk_costs_no_client_its_answer_but_nothing_new_is_taken(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps(granted=2)
    async with running_worker(sim_redis_url, SimEngine(sleep=steps)) as running:
        await running.ready()
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=4))
        await StreamReader(gateway, request_id).wait_for(1, 2)
        await running.disk.fill()
        steps.grant(100)
        assert (await gateway.terminal_of(request_id)).outcome is Outcome.COMPLETED

        async def is_benched() -> bool:
            info = await dispatch_redis.hget(keys.pool_workers("sim"), running.worker_id)
            assert isinstance(info, bytes)
            slots = await dispatch_redis.zcard(keys.pool_slots("sim"))
            return slots == 0 and bool(codec.decode_worker_info(info).problem)

        await eventually(is_benched, timeout_seconds=15)
        waiting = await gateway.send(make_envelope(max_output_tokens=1))
        await running.disk.make_room()
        assert (await gateway.terminal_of(waiting)).outcome is Outcome.COMPLETED
    assert len(await records(dispatch_redis)) == 2
