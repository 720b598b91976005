"""Which slots a worker posts, and which it says that it has."""

from typing import cast

from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import WorkerInfo
from gpu_workers.sim.engine import SimEngine
from tests.support.polling import eventually
from tests.support.workers.asking import ENDLESS
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import RunningWorker, Steps, running_worker


async def info_with_waiting(redis: Redis, worker_id: str, waiting: int) -> WorkerInfo:
    """What the worker said when so many sequences waited in its engine."""

    async def said() -> WorkerInfo | None:
        stored = cast("bytes", await redis.hget(keys.pool_workers("sim"), worker_id))
        info = codec.decode_worker_info(stored)
        return info if info.waiting_in_engine == waiting else None

    return cast("WorkerInfo", await eventually(said))


async def posted_slots(redis: Redis, running: RunningWorker) -> float:
    return cast("float", await redis.zscore(keys.pool_slots("sim"), running.worker_id))


async def test_what_a_wide_request_has_beyond_the_slots_is_not_taken_from_them_twice(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    steps = Steps()
    engine = SimEngine(slots=4, sleep=steps)
    async with running_worker(sim_redis_url, engine) as running:
        await running.ready()
        for _ in range(2):
            await gateway.send(make_envelope(ENDLESS | {"n": 3}, sequences=3))
        await eventually(lambda: engine.load().held == 2)
        steps.grant(1)  # an engine admits between its steps
        info = await info_with_waiting(dispatch_redis, running.worker_id, 2)
        assert info.slots == 4
        assert await posted_slots(dispatch_redis, running) == 4
        assert await dispatch_redis.zscore(keys.pool_free_slots("sim"), running.worker_id) == 0


async def test_what_else_waits_in_the_engine_is_taken_from_the_slots_that_are_posted(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    """The worker has its slots all the same: a door refuses nothing by what is crowded today."""
    engine = SimEngine(slots=4, sleep=Steps())
    async with running_worker(sim_redis_url, engine) as running:
        await running.ready()
        await gateway.send(make_envelope(ENDLESS | {"n": 6}))
        info = await info_with_waiting(dispatch_redis, running.worker_id, 2)
        assert info.slots == 4
        assert await posted_slots(dispatch_redis, running) == 2
