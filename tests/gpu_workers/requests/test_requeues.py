"""What a worker gives back to the queue, and how another one goes on with it."""

from typing import Any

import pytest
from msgspec import structs
from redis.asyncio import Redis

from gpu_workers.protocol import functions, keys
from gpu_workers.protocol.calls import requeue_arguments
from gpu_workers.protocol.messages import Envelope, Outcome
from gpu_workers.sim.engine import SimEngine
from gpu_workers.worker import Exit
from tests.support.polling import eventually
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import Steps, running_worker
from tests.support.workers.stream_reader import StreamReader, waiting_envelope

MESSAGES: dict[str, Any] = {"messages": [{"role": "user", "content": "Go on for ever."}]}
ENDLESS = MESSAGES | {"ignore_eos": True}


async def undisturbed(envelope: Envelope) -> list[int]:
    """The tokens of the same request without any trouble."""
    engine = SimEngine(sleep=Steps(granted=10_000))
    await engine.start()
    try:
        return [
            token_id
            async for item in engine.generate(envelope)
            for token_id in getattr(item, "token_ids", [])
        ]
    finally:
        await engine.stop()


async def test_a_preempted_stream_goes_on_where_it_was_and_is_on_record_once(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    envelope = make_envelope(ENDLESS, max_output_tokens=20, service_class="batch")
    steps = Steps()
    async with running_worker(sim_redis_url, SimEngine(slots=1, sleep=steps)) as running:
        await running.ready()
        request_id = await gateway.send(envelope)
        reader = StreamReader(gateway, request_id)
        steps.grant(5)
        await reader.wait_for(1, 5)
        quick = make_envelope(MESSAGES, max_output_tokens=3)
        await gateway.send(quick)
        again = await waiting_envelope(dispatch_redis, request_id)
        assert again.resumed_token_ids == reader.token_ids(1)
        steps.grant(1000)
        assert (await gateway.terminal_of(quick.request_id)).outcome is Outcome.COMPLETED
        terminal = await gateway.terminal_of(request_id)
    assert terminal.outcome is Outcome.COMPLETED
    assert terminal.attempt == 2
    assert reader.token_ids(2) == await undisturbed(envelope)
    assert reader.token_ids(1) == reader.token_ids(2)[:5]
    records = [each for each in await gateway.usage_entries() if each.request_id == request_id]
    assert [each.usage.completion_tokens for each in records] == [20]


async def test_a_preempted_answer_that_does_not_stream_keeps_its_tokens(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    envelope = make_envelope(ENDLESS, max_output_tokens=20, service_class="batch", stream=False)
    steps = Steps()
    engine = SimEngine(slots=1, sleep=steps)
    async with running_worker(sim_redis_url, engine) as running:
        await running.ready()
        request_id = await gateway.send(envelope)
        await eventually(lambda: engine.load().running)
        steps.grant(4)
        await eventually(steps.are_taken)
        quick = make_envelope(MESSAGES, max_output_tokens=3)
        await gateway.send(quick)
        again = await waiting_envelope(dispatch_redis, request_id)
        assert len(again.resumed_token_ids) == 4
        steps.grant(1000)
        terminal = await gateway.terminal_of(request_id)
    assert terminal.body is not None
    assert terminal.usage.completion_tokens == 20
    streamed = make_envelope(ENDLESS, max_output_tokens=20)
    assert again.resumed_token_ids == (await undisturbed(streamed))[:4]


async def test_a_cancellation_that_meets_a_preemption_wins(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps()
    async with running_worker(sim_redis_url, SimEngine(slots=1, sleep=steps)) as running:
        await running.ready()
        envelope = make_envelope(ENDLESS, max_output_tokens=20, service_class="batch")
        request_id = await gateway.send(envelope)
        steps.grant(2)
        await StreamReader(gateway, request_id).wait_for(1, 2)
        pipeline = dispatch_redis.pipeline(transaction=False)
        message = f"preempt {request_id} 1\n"
        pipeline.rpush(keys.pool_inbox("sim", running.worker_id), message)
        pipeline.fcall(functions.CANCEL, 1, keys.pool_prefix("sim"), request_id)
        await pipeline.execute()
        terminal = await gateway.terminal_of(request_id)
    assert terminal.outcome is Outcome.CANCELLED
    assert terminal.usage.completion_tokens == 2
    assert await dispatch_redis.zcard(keys.pool_queue("sim")) == 0


@pytest.mark.parametrize("stream", [True, False])
async def test_another_worker_goes_on_after_an_engine_that_died(
    stream: bool, dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    envelope = make_envelope(ENDLESS, max_output_tokens=12, stream=stream)
    engine, steps = SimEngine(sleep=Steps(granted=3)), Steps(granted=10_000)
    async with running_worker(sim_redis_url, engine) as first:
        await first.ready()
        request_id = await gateway.send(envelope)
        reader = StreamReader(gateway, request_id)
        if stream:
            await reader.wait_for(1, 3)
        await eventually(lambda: engine.load().running)
        engine.fail("killed by a drill")
        assert await first.exit_code() is Exit.ENGINE_DIED
        again = await waiting_envelope(dispatch_redis, request_id)
        assert again.resumed_token_ids == reader.token_ids(1)
        async with running_worker(sim_redis_url, SimEngine(sleep=steps), name="v"):
            terminal = await gateway.terminal_of(request_id)
    assert terminal.outcome is Outcome.COMPLETED
    assert terminal.usage.completion_tokens == 12
    if stream:
        assert reader.token_ids(2) == await undisturbed(envelope)
    assert len(await gateway.usage_entries()) == 1


async def test_a_worker_may_be_given_the_next_attempt_of_what_it_still_holds(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    """Frames of the first were lost, and no other worker is there."""
    envelope = make_envelope(ENDLESS, max_output_tokens=12)
    steps = Steps(granted=3)
    async with running_worker(sim_redis_url, SimEngine(sleep=steps)) as running:
        await running.ready()
        request_id = await gateway.send(envelope)
        await StreamReader(gateway, request_id).wait_for(1, 3)
        again = structs.replace(
            envelope, resumed_token_ids=StreamReader(gateway, request_id).token_ids(1)
        )
        arguments = requeue_arguments(request_id, 1, "frames_lost", again)
        await dispatch_redis.fcall(functions.REQUEUE, 1, keys.pool_prefix("sim"), *arguments)
        steps.grant(100)
        terminal = await gateway.terminal_of(request_id)
    assert (terminal.attempt, terminal.outcome) == (2, Outcome.COMPLETED)
    assert StreamReader(gateway, request_id).token_ids(2) == await undisturbed(envelope)


async def test_what_outlasts_a_drain_goes_on_in_another_worker(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    envelope = make_envelope(ENDLESS, max_output_tokens=12)
    engine = SimEngine(sleep=Steps(granted=3))
    async with running_worker(sim_redis_url, engine, drain_seconds=0.05) as first:
        await first.ready()
        request_id = await gateway.send(envelope)
        reader = StreamReader(gateway, request_id)
        await reader.wait_for(1, 3)
        first.worker.drain()
        assert await first.exit_code() is Exit.DRAINED
    steps = Steps(granted=10_000)
    async with running_worker(sim_redis_url, SimEngine(sleep=steps), name="v"):
        terminal = await gateway.terminal_of(request_id)
    assert terminal.outcome is Outcome.COMPLETED
    assert reader.token_ids(2) == await undisturbed(envelope)


async def test_the_third_engine_that_dies_with_a_request_is_the_last(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=100))
    for number in range(1, 4):
        engine = SimEngine(sleep=Steps(granted=2))
        async with running_worker(sim_redis_url, engine, name=f"w{number}") as running:
            await StreamReader(gateway, request_id).wait_for(number, 2)
            engine.fail("poisoned")
            assert await running.exit_code() is Exit.ENGINE_DIED
    terminal = await gateway.terminal_of(request_id)
    assert terminal.outcome is Outcome.FAILED
    assert terminal.error is not None
    assert terminal.error.code == "attempts_exhausted"
    assert await dispatch_redis.xlen(keys.pool_dead_letters("sim")) == 1
    (entry,) = await gateway.usage_entries()
    assert (entry.attempt, entry.error_code) == (3, "attempts_exhausted")


async def test_a_request_whose_gateway_is_gone_is_not_tried_again(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    engine = SimEngine(sleep=Steps(granted=2))
    async with running_worker(sim_redis_url, engine) as running:
        await running.ready()
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=100))
        await StreamReader(gateway, request_id).wait_for(1, 2)
        await gateway.vanish()

        async def is_on_record() -> bool:
            return bool(await gateway.usage_entries())

        await eventually(is_on_record, timeout_seconds=10)
    (entry,) = await gateway.usage_entries()
    assert entry.outcome is Outcome.CANCELLED
    assert await dispatch_redis.zcard(keys.pool_queue("sim")) == 0
