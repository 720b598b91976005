"""What engines have generated, by their own counts, is what the attempts of their lives report."""

from collections import Counter
from pathlib import Path
from typing import Any

from msgspec import structs
from redis.asyncio import Redis

from gpu_workers.engine import EngineLoad, Result
from gpu_workers.outbox.waste import waste_entry
from gpu_workers.protocol import codec, stream_fields
from gpu_workers.protocol.messages import Outcome, TokenUsage
from gpu_workers.protocol.request_id import new_request_id
from gpu_workers.protocol.usage import UsageEntry, WasteEntry
from gpu_workers.requests.open_request import OpenRequest
from gpu_workers.sim.engine import SimEngine
from gpu_workers.worker import Exit
from tests.support.polling import eventually
from tests.support.workers.asking import ENDLESS
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import RunningWorker, Steps, running_worker
from tests.support.workers.stream_reader import StreamReader
from tests.support.workers.usage_stream import a_record, engine_counters, records, requeue, wastes


async def generated_by_life(redis: Redis) -> Counter[str | None]:
    """Tokens that the attempts of each life say its engine generated."""
    generated: Counter[str | None] = Counter()
    entries: list[UsageEntry | WasteEntry] = [*await records(redis), *await wastes(redis)]
    for entry in entries:
        assert entry.generated_tokens is not None
        generated[entry.worker_id] += entry.generated_tokens
    return generated


async def drain(running: RunningWorker) -> None:
    running.worker.drain()
    running.worker.drain()  # not to its end: what it holds goes on elsewhere
    assert await running.exit_code() is Exit.DRAINED


async def test_a_drained_workers_request_adds_up_across_two_lives(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    async with running_worker(sim_redis_url, SimEngine(sleep=Steps(granted=4)), "one") as first:
        await first.ready()
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=10))
        await StreamReader(gateway, request_id).wait_for(1, 4)
        steps = Steps(granted=1000)
        async with running_worker(sim_redis_url, SimEngine(sleep=steps), "two") as second:
            await second.ready()
            await drain(first)
            terminal = await gateway.terminal_of(request_id)
            await drain(second)
    [record] = await records(dispatch_redis)
    assert terminal.usage.completion_tokens == record.usage.completion_tokens == 10
    assert (record.attempt, record.generated_tokens) == (2, 6)
    [waste] = await wastes(dispatch_redis)
    assert (waste.attempt, waste.completion_tokens, waste.generated_tokens) == (1, 0, 4)
    generated = await generated_by_life(dispatch_redis)
    counted = {
        each.worker_id: each.generated_tokens for each in await engine_counters(dispatch_redis)
    }
    assert counted == dict(generated) == {first.worker_id: 4, second.worker_id: 6}
    assert all(each.is_final for each in await engine_counters(dispatch_redis))


async def test_an_idle_worker_reports_its_count_when_it_has_changed(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    engine = SimEngine(step_seconds=0.001)
    async with running_worker(sim_redis_url, engine, counter_report_seconds=0.05) as running:
        for count in (1, 2):
            request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=7))
            await gateway.terminal_of(request_id)

            async def is_reported(count: int = count) -> bool:
                return len(await engine_counters(dispatch_redis)) >= count

            await eventually(is_reported)
        await drain(running)
    told = await engine_counters(dispatch_redis)
    assert [(each.generated_tokens, each.is_final) for each in told] == [
        (7, False),
        (14, False),
        (14, True),
    ]
    ended = [entry.finished_at_ms for entry in await records(dispatch_redis)]
    assert ended[0] <= told[0].at_ms <= ended[1] <= told[1].at_ms


class WatchedEngine(SimEngine):
    """Counts how often it is asked for its load."""

    looks = 0

    def load(self) -> EngineLoad:
        self.looks += 1
        return super().load()


async def test_nothing_is_reported_while_a_request_is_open(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    engine = WatchedEngine(sleep=Steps(granted=4))
    async with running_worker(sim_redis_url, engine, counter_report_seconds=0.001):
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=10))
        await StreamReader(gateway, request_id).wait_for(1, 4)
        looks = engine.looks
        await eventually(lambda: engine.looks > looks + 50)
        assert await engine_counters(dispatch_redis) == []


async def test_a_life_whose_engine_dies_reports_no_final_count(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    engine = SimEngine(step_seconds=0.001)
    async with running_worker(sim_redis_url, engine) as running:
        await gateway.terminal_of(await gateway.send(make_envelope(max_output_tokens=3)))
        engine.fail("killed")
        assert await running.exit_code() is Exit.ENGINE_DIED
    assert await engine_counters(dispatch_redis) == []


async def test_an_attempt_in_doubt_is_waited_for(
    dispatch_redis: Redis, sim_redis_url: str, tmp_path: Path
) -> None:
    abandoned = codec.encode(a_record(new_request_id(), completion_tokens=3))
    async with running_worker(sim_redis_url, SimEngine(), outbox=tmp_path) as first:
        await first.ready()
        seq = await first.outbox.put(stream_fields.WASTE_FIELD, abandoned, gateway_id="", resumed=0)
        first.outbox.mark_in_doubt(seq)
        await drain(first)
    assert await engine_counters(dispatch_redis) == []
    async with running_worker(sim_redis_url, SimEngine(), outbox=tmp_path) as second:
        await second.ready()
        second.outbox.forget([seq])
        await drain(second)
    [counter] = await engine_counters(dispatch_redis)
    assert (counter.worker_id, counter.is_final) == (second.worker_id, True)


async def test_what_leaves_no_record_is_counted_apart(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    """An operator runs a dead letter once more."""
    again = structs.replace(make_envelope(ENDLESS, max_output_tokens=5), is_billed=False)
    async with running_worker(sim_redis_url, SimEngine(step_seconds=0.001)) as running:
        await running.ready()
        for envelope in (again, make_envelope(ENDLESS, max_output_tokens=3)):
            await gateway.terminal_of(await gateway.send(envelope))
        await drain(running)
    [counter] = await engine_counters(dispatch_redis)
    assert (counter.generated_tokens, counter.unbilled_tokens) == (8, 5)


async def test_a_stale_attempt_reports_its_tokens_although_another_resumes_from_all_of_them(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps(granted=4)
    async with running_worker(sim_redis_url, SimEngine(sleep=steps)) as running:
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=10))
        await StreamReader(gateway, request_id).wait_for(1, 4)
        await requeue(dispatch_redis, request_id, resumed=4)
        await drain(running)
    [waste] = await wastes(dispatch_redis)
    assert (waste.completion_tokens, waste.generated_tokens) == (0, 4)
    [counter] = await engine_counters(dispatch_redis)
    assert counter.generated_tokens == 4


def resumed_entry(result: Result) -> UsageEntry:
    """Of an attempt that was to resume from five tokens."""
    envelope = make_envelope(resumed_token_ids=range(5))
    return OpenRequest(envelope=envelope, attempt=2).usage_entry(result, "w#2")


def cancelled(**tokens: Any) -> Result:
    return Result(outcome=Outcome.CANCELLED, usage=TokenUsage(**tokens))


def test_a_resumed_attempt_reports_only_its_own_tokens() -> None:
    entry = resumed_entry(cancelled(completion_tokens=8))
    assert (entry.generated_tokens, entry.wasted_tokens) == (3, 0)


def test_what_nobody_resumed_from_is_wasted() -> None:
    entry = resumed_entry(cancelled())
    assert (entry.usage.completion_tokens, entry.wasted_tokens, entry.generated_tokens) == (0, 5, 0)
    assert entry.waste_reason == "not_resumed"
    assert waste_entry(entry, 5, "worker_lost") is None, "where another attempt goes on after all"
