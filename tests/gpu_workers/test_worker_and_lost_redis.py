"""What a worker does when its Redis comes back without a memory."""

from typing import Any

from msgspec.structs import replace
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Outcome
from gpu_workers.sim.engine import SimEngine
from gpu_workers.transport import Transport
from tests.support.gateways.cast import a_worker_info
from tests.support.polling import eventually
from tests.support.workers.asking import ENDLESS
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import Steps, running_worker


async def _has_adopted(redis: Redis, request_id: str) -> bool:
    return await redis.hget(keys.pool_request("sim", request_id), "state") == b"running"


async def test_a_request_that_redis_lost_is_adopted_and_ends_once(
    dispatch_redis: Redis,
    sim_redis_url: str,
    gateway: FakeGateway,
) -> None:
    steps = Steps(granted=3)
    async with running_worker(sim_redis_url, SimEngine(sleep=steps)) as running:
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=20))
        await gateway.delta_of(request_id)
        await dispatch_redis.flushdb()
        await gateway.appear()
        await eventually(lambda: _has_adopted(dispatch_redis, request_id))
        steps.grant(100)
        terminal = await gateway.terminal_of(request_id)
        assert await dispatch_redis.zcard(keys.pool_open_requests("sim")) == 0
    assert (terminal.attempt, terminal.outcome) == (1, Outcome.COMPLETED)
    (entry,) = await gateway.usage_entries()
    assert entry.usage.completion_tokens == 20
    assert entry.worker_id == running.worker_id


async def test_a_request_that_ends_before_redis_knows_the_worker_again_is_on_record(
    dispatch_redis: Redis,
    sim_redis_url: str,
    gateway: FakeGateway,
) -> None:
    steps = Steps(granted=3)
    async with running_worker(sim_redis_url, SimEngine(sleep=steps)):
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=20))
        await gateway.delta_of(request_id)
        await dispatch_redis.flushdb()
        await gateway.appear()
        steps.grant(100)
        assert (await gateway.terminal_of(request_id)).outcome is Outcome.COMPLETED
    assert len(await gateway.usage_entries()) == 1


async def test_a_request_that_another_worker_has_by_then_is_ended_silently(
    dispatch_redis: Redis,
    sim_redis_url: str,
    gateway: FakeGateway,
) -> None:
    steps = Steps(granted=3)
    engine = SimEngine(sleep=steps)
    async with running_worker(sim_redis_url, engine):
        envelope = make_envelope(ENDLESS, max_output_tokens=20)
        request_id = await gateway.send(envelope)
        await gateway.delta_of(request_id)
        await dispatch_redis.flushdb()
        fields: dict[Any, Any] = {"state": "running", "attempt": "2", "worker": "another#1"}
        await dispatch_redis.hset(keys.pool_request("sim", request_id), mapping=fields)
        await gateway.appear()
        await eventually(lambda: engine.load().running == 0)
    assert request_id not in gateway.terminals
    assert await gateway.usage_entries() == []


async def test_an_adopted_request_takes_the_place_of_its_adapter(
    dispatch_redis: Redis,
    sim_redis_url: str,
    gateway: FakeGateway,
) -> None:
    worker = replace(a_worker_info(pool="sim"), adapter_slots=1)
    transport = Transport(sim_redis_url, pool="sim", worker_id=worker.worker_id, worker_name="one")
    try:
        await transport.register(worker)
        adopted = replace(make_envelope(), adapter="poems")
        assert await transport.adopt([(adopted, 1)]) == set()
        await transport.claim(worker, slots=worker.slots, ready=True)
        other = await gateway.send(replace(make_envelope(), adapter="recipes"))
        same = await gateway.send(replace(make_envelope(), adapter="poems"))
        states = [
            await dispatch_redis.hget(keys.pool_request("sim", each), "state")
            for each in (other, same)
        ]
        assert states == [b"queued", b"running"]
    finally:
        await transport.close()
