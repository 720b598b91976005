"""The adapters of a worker without the worker: its engine, what it posts,
and requests that use one."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from redis.asyncio import Redis

from gpu_workers.adapters.worker_adapters import LOOK_EVERY_SECONDS, WorkerAdapters
from gpu_workers.cancellation import cancel_and_wait
from gpu_workers.engine import EngineLoad, LoadableAdapter
from gpu_workers.metrics import WorkerMetrics
from gpu_workers.protocol.adapters import AdapterLevel
from gpu_workers.sim.engine import SimEngine
from tests.support.polling import eventually
from tests.support.workers.adapters.store import IN_TIME_SECONDS, MadeAdapter


class WatchedEngine(SimEngine):
    """What is loaded in it, and what it was asked to unload."""

    def __init__(self, *, slots: int, in_memory: int) -> None:
        super().__init__(adapter_slots=slots, adapters_in_memory=in_memory)
        self.loaded: list[str] = []
        self.loads = 0
        self.stands_still_for = 0.0  # seconds, at each load
        self._stood_still = 0.0

    async def load_adapter(self, adapter: LoadableAdapter) -> None:
        self.loads += 1
        await super().load_adapter(adapter)
        self._stood_still += self.stands_still_for
        self.loaded.append(adapter.name)

    def load(self) -> EngineLoad:
        return dataclasses.replace(super().load(), loading_seconds=self._stood_still)

    async def unload_adapter(self, name: str) -> None:
        await super().unload_adapter(name)
        self.loaded.remove(name)


class Running:
    """The adapters of a worker with this engine, and the levels that it has posted."""

    def __init__(
        self,
        redis: Redis,
        folder: Path,
        engine: WatchedEngine,
        *,
        cache_bytes: int = 2**30,
        look_every_seconds: float = 0.05,
        forget_every_seconds: float = LOOK_EVERY_SECONDS,
    ) -> None:
        self.engine = engine
        self.levels: dict[str, AdapterLevel] = {}
        self.posts: list[Mapping[str, AdapterLevel | None]] = []
        self.load_us: dict[str, int] = {}
        self.fails_with: list[Exception] = []
        self.adapters = WorkerAdapters(
            engine=engine,
            redis=redis,
            post=self._post,
            pool="sim",
            metrics=WorkerMetrics("sim"),
            cache=folder,
            cache_bytes=cache_bytes,
            look_every_seconds=look_every_seconds,
            forget_every_seconds=forget_every_seconds,
        )
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        upkeep = await self.adapters.start(await self.engine.start())
        self._tasks = [asyncio.create_task(each) for each in upkeep]

    async def stop(self) -> None:
        await cancel_and_wait(self._tasks)
        await self.adapters.close()
        await self.engine.stop()

    async def hears(self, levels: dict[MadeAdapter, AdapterLevel]) -> None:
        wanted = {adapter.name: level for adapter, level in levels.items()}
        await eventually(lambda: self.levels == wanted)

    async def _post(
        self, changes: Mapping[str, AdapterLevel | None], load_us: Mapping[str, int]
    ) -> None:
        if self.fails_with:
            raise self.fails_with.pop()
        self.posts.append(changes)
        self.load_us |= load_us
        for name, level in changes.items():
            self.levels.pop(name, None)
            if level is not None:
                self.levels[name] = level


@asynccontextmanager
async def running(
    redis: Redis,
    folder: Path,
    *,
    slots: int = 2,
    in_memory: int = 2,
    cache_bytes: int = 2**30,
    look_every_seconds: float = 0.05,
    forget_every_seconds: float = LOOK_EVERY_SECONDS,
) -> AsyncIterator[Running]:
    """Run a worker's adapters; `look_every_seconds`: at what is pinned, `forget_every_seconds`: at
    what the pool has no more."""
    each = Running(
        redis,
        folder,
        WatchedEngine(slots=slots, in_memory=in_memory),
        cache_bytes=cache_bytes,
        look_every_seconds=look_every_seconds,
        forget_every_seconds=forget_every_seconds,
    )
    await each.start()
    try:
        yield each
    finally:
        await each.stop()


class Use:
    """A request that has its adapter from `begun` until `end`."""

    def __init__(self, worker: Running, adapter: MadeAdapter) -> None:
        self.begun = asyncio.Event()
        self.until: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._ended = asyncio.Event()
        self._task = asyncio.create_task(self._run(worker, adapter))

    async def _run(self, worker: Running, adapter: MadeAdapter) -> None:
        async with worker.adapters.use(adapter.name, self.until):
            self.begun.set()
            await self._ended.wait()

    async def begins(self) -> "Use":
        waiting = asyncio.create_task(self.begun.wait())
        await asyncio.wait(
            {waiting, self._task}, timeout=IN_TIME_SECONDS, return_when=asyncio.FIRST_COMPLETED
        )
        waiting.cancel()
        if self._task.done():
            self._task.result()
        assert self.begun.is_set()
        return self

    async def end(self) -> None:
        self._ended.set()
        await self._task


async def use_once(worker: Running, adapter: MadeAdapter) -> None:
    await (await Use(worker, adapter).begins()).end()
