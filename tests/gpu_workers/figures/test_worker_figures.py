"""A whole worker tells how its engine does."""

from redis.asyncio import Redis

from gpu_workers.protocol.messages import WorkerInfo
from gpu_workers.sim.engine import SimEngine
from tests.support.polling import eventually
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.running_worker import Steps, running_worker
from tests.support.workers.worker_process import published

ENDLESS = {"messages": [{"role": "user", "content": "Go on for ever."}], "ignore_eos": True}


async def test_a_worker_tells_how_its_engine_does(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway
) -> None:
    async def told_a_step() -> WorkerInfo | None:
        info = await published(dispatch_redis)
        has_step = info is not None and info.figures is not None and info.figures.step_us
        return info if has_step else None

    engine = SimEngine(slots=4, sleep=Steps(granted=4))
    async with running_worker(sim_redis_url, engine) as running:
        await running.ready()
        await gateway.send(make_envelope(ENDLESS, max_output_tokens=1000))
        info = await eventually(told_a_step)
    assert info is not None
    assert info.figures is not None
    assert info.figures.kv_used is not None
    assert 0 < info.figures.kv_used < 1
    assert info.figures.batch_used == 0.25
    assert info.figures.preemptions == 0
    assert info.figures.prefix_asked_tokens is None, "it has no prefix cache"
    assert info.gpus == []
