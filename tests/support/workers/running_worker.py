"""A whole worker in the test's own event loop, with a simulated engine that it steps."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from redis.asyncio import Redis

from gpu_workers.cancellation import cancel_and_wait
from gpu_workers.heartbeat import Heartbeat
from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import WorkerInfo, WorkerState
from gpu_workers.sim.engine import SimEngine
from gpu_workers.transport import Transport
from gpu_workers.worker import Exit, Worker
from tests.support.polling import eventually
from tests.support.workers.outboxes import SmallDisk


class Steps:
    """The simulated engine's sleep: a step is taken when the test grants one."""

    def __init__(self, granted: int = 0) -> None:
        self._granted = asyncio.Semaphore(granted)

    def grant(self, steps: int) -> None:
        for _ in range(steps):
            self._granted.release()

    def are_taken(self) -> bool:
        return self._granted.locked()

    async def __call__(self, seconds: float) -> None:
        await self._granted.acquire()


class RunningWorker:
    def __init__(
        self, redis_url: str, engine: SimEngine, name: str, folder: Path, **options: Any
    ) -> None:
        RunningWorker.count += 1
        self.worker_id = f"{name}#{RunningWorker.count:04x}"
        transport = Transport(redis_url, pool="sim", worker_id=self.worker_id, worker_name=name)
        self.disk = SmallDisk(folder, pool="sim")
        self.outbox = self.disk.outbox
        self.worker = Worker(
            engine=engine,
            transport=transport,
            heartbeat=Heartbeat(redis_url, pool="sim", worker_id=self.worker_id),
            outbox=self.outbox,
            worker_id=self.worker_id,
            name=name,
            pool="sim",
            model="sim",
            engine_name="sim",
            **options,
        )
        self.task = asyncio.create_task(self.worker.run())

    count = 0

    async def ready(self) -> None:
        await eventually(lambda: self.worker.state is WorkerState.READY)

    async def exit_code(self) -> Exit:
        async with asyncio.timeout(10):
            return await self.task


@asynccontextmanager
async def running_worker(
    redis_url: str,
    engine: SimEngine,
    name: str = "w",
    *,
    outbox: Path | None = None,
    **options: Any,
) -> AsyncIterator[RunningWorker]:
    """`outbox` is a folder to be found again by the next one."""
    with tempfile.TemporaryDirectory(prefix="penstock-outbox-") as folder:
        running = RunningWorker(redis_url, engine, name, outbox or Path(folder), **options)
        try:
            yield running
        finally:
            await cancel_and_wait([running.task])
            await running.outbox.close()


async def worker_infos(redis: Redis) -> dict[str, WorkerInfo]:
    """What the registry has of the pool of such workers, by worker id."""
    stored = cast("dict[bytes, bytes]", await redis.hgetall(keys.pool_workers("sim")))
    return {
        worker_id.decode(): codec.decode_worker_info(info) for worker_id, info in stored.items()
    }
