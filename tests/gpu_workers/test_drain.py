"""A worker drains: it takes nothing new, ends what it holds, and leaves, or stays to be resumed."""

import pytest
from prometheus_client import REGISTRY
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from gpu_workers.protocol import functions, keys
from gpu_workers.protocol.messages import Outcome, WorkerState
from gpu_workers.sim.engine import SimEngine
from gpu_workers.worker import Exit
from tests.support.polling import eventually
from tests.support.workers.envelopes import ENDLESS, make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import Steps, running_worker, worker_infos


async def test_a_drain_lets_open_requests_end_takes_nothing_new_and_deregisters(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps(granted=1)
    async with running_worker(sim_redis_url, SimEngine(sleep=steps)) as running:
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=6))
        await gateway.delta_of(request_id)
        running.worker.drain()
        await eventually(lambda: _is_draining(dispatch_redis))
        late = await gateway.send(make_envelope())
        steps.grant(20)
        assert (await gateway.terminal_of(request_id)).outcome is Outcome.COMPLETED
        assert await running.exit_code() is Exit.DRAINED
    assert late not in gateway.terminals
    assert await worker_infos(dispatch_redis) == {}
    assert await dispatch_redis.zcard(keys.pool_queue("sim")) == 1


async def _is_draining(redis: Redis) -> bool:
    return {info.state for info in (await worker_infos(redis)).values()} == {WorkerState.DRAINING}


async def test_a_message_drains_a_worker_as_sigterm_does_and_a_repetition_hurries_nobody(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps(granted=1)
    async with running_worker(sim_redis_url, SimEngine(sleep=steps)) as running:
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=6))
        await gateway.delta_of(request_id)
        for _ in range(3):
            assert await _drain(dispatch_redis, running.worker_id) == 1
        late = await gateway.send(make_envelope())
        await eventually(lambda: _is_draining(dispatch_redis))
        assert await _drain(dispatch_redis, running.worker_id) == 1
        steps.grant(20)
        assert (await gateway.terminal_of(request_id)).outcome is Outcome.COMPLETED
        assert await running.exit_code() is Exit.DRAINED
    assert late not in gateway.terminals
    assert await dispatch_redis.zcard(keys.pool_queue("sim")) == 1
    assert await _drain(dispatch_redis, running.worker_id) == 0, "it is gone"
    assert not await dispatch_redis.exists(keys.pool_inbox("sim", running.worker_id))


async def _drain(redis: Redis, worker_id: str, order: str = "drain") -> int:
    pool = keys.pool_prefix("sim")
    answer: int = await redis.fcall(functions.GIVE_ORDER, 1, pool, worker_id, order)
    return answer


async def _says(redis: Redis, state: WorkerState, *, stays: bool) -> bool:
    infos = (await worker_infos(redis)).values()
    return {(info.state, info.stays) for info in infos} == {(state, stays)}


async def test_a_worker_that_drains_to_stay_takes_nothing_until_it_is_resumed(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps(granted=1)
    async with running_worker(sim_redis_url, SimEngine(sleep=steps), drain_seconds=0.05) as running:
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=6))
        await gateway.delta_of(request_id)
        assert await _drain(dispatch_redis, running.worker_id, "drain stay") == 1
        await eventually(lambda: _says(dispatch_redis, WorkerState.DRAINING, stays=True))
        late = await gateway.send(make_envelope())
        steps.grant(20)
        assert (await gateway.terminal_of(request_id)).outcome is Outcome.COMPLETED
        await eventually(lambda: _says(dispatch_redis, WorkerState.DRAINED, stays=True))
        assert late not in gateway.terminals
        assert await dispatch_redis.zcard(keys.pool_queue("sim")) == 1
        assert REGISTRY.get_sample_value("penstock_worker_drained", {"model": "sim"}) == 1

        assert await _drain(dispatch_redis, running.worker_id, "resume") == 1
        steps.grant(20)
        assert (await gateway.terminal_of(late)).outcome is Outcome.COMPLETED
        await eventually(lambda: _says(dispatch_redis, WorkerState.READY, stays=False))
        assert REGISTRY.get_sample_value("penstock_worker_drained", {"model": "sim"}) == 0


async def test_a_worker_that_stays_leaves_when_it_is_told_to(
    dispatch_redis: Redis, sim_redis_url: str
) -> None:
    async with running_worker(sim_redis_url, SimEngine(sleep=Steps())) as running:
        await running.ready()
        await _drain(dispatch_redis, running.worker_id, "drain stay")
        await eventually(lambda: _says(dispatch_redis, WorkerState.DRAINED, stays=True))
        await _drain(dispatch_redis, running.worker_id)
        assert await running.exit_code() is Exit.DRAINED
    assert await worker_infos(dispatch_redis) == {}


async def test_a_first_sigterm_to_a_worker_that_stays_hurries_nobody(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps(granted=1)
    async with running_worker(sim_redis_url, SimEngine(sleep=steps), drain_seconds=600) as running:
        request_id = await gateway.send(make_envelope(ENDLESS, max_output_tokens=6))
        await gateway.delta_of(request_id)
        await _drain(dispatch_redis, running.worker_id, "drain stay")
        await eventually(lambda: _says(dispatch_redis, WorkerState.DRAINING, stays=True))
        running.worker.drain()
        await eventually(lambda: _says(dispatch_redis, WorkerState.DRAINING, stays=False))
        steps.grant(20)
        assert (await gateway.terminal_of(request_id)).outcome is Outcome.COMPLETED
        assert await running.exit_code() is Exit.DRAINED


async def test_a_drain_that_nobody_read_gives_way_to_the_next_order(
    dispatch_redis: Redis, sim_redis_url: str
) -> None:
    async with running_worker(sim_redis_url, SimEngine(sleep=Steps())) as running:
        await running.ready()
        with pytest.raises(ResponseError, match="unknown order jump"):
            await _drain(dispatch_redis, running.worker_id, "jump")
        await _drain(dispatch_redis, running.worker_id, "drain stay")
        await _drain(dispatch_redis, running.worker_id, "resume")
        await eventually(lambda: _says(dispatch_redis, WorkerState.READY, stays=False))
        assert await _drain(dispatch_redis, "gone#1", "resume") == 0


async def test_what_outlasts_the_drain_and_cannot_go_on_elsewhere_is_failed_with_its_tokens(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    engine = SimEngine(sleep=Steps(granted=3))
    async with running_worker(sim_redis_url, engine, drain_seconds=0.05) as running:
        request_id = await gateway.send(
            make_envelope(ENDLESS, max_output_tokens=1000, is_resumable=False)
        )
        await gateway.delta_of(request_id)
        running.worker.drain()
        terminal = await gateway.terminal_of(request_id)
        assert await running.exit_code() is Exit.DRAINED
    assert terminal.outcome is Outcome.FAILED
    assert terminal.error is not None
    assert terminal.error.code == "worker_stopped"
    assert terminal.usage.completion_tokens > 0


async def test_a_second_drain_ends_open_requests_at_once(
    sim_redis_url: str, gateway: FakeGateway
) -> None:
    engine = SimEngine(sleep=Steps(granted=3))
    async with running_worker(sim_redis_url, engine, drain_seconds=600) as running:
        request_id = await gateway.send(
            make_envelope(ENDLESS, max_output_tokens=1000, is_resumable=False)
        )
        await gateway.delta_of(request_id)
        running.worker.drain()
        running.worker.drain()
        assert (await gateway.terminal_of(request_id)).outcome is Outcome.FAILED
        assert await running.exit_code() is Exit.DRAINED
