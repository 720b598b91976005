"""A store of adapters beside the pool's Redis, and what a worker has of them on its disk."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis

from gpu_workers.sim.engine import SimEngine
from tests.support.workers.adapters.store import AdapterStore
from tests.support.workers.running_worker import RunningWorker, running_worker

Serving = Callable[[SimEngine], AbstractAsyncContextManager[RunningWorker]]


@pytest.fixture
async def store(dispatch_redis: Redis) -> AsyncIterator[AdapterStore]:
    async with AdapterStore(dispatch_redis).running() as store:
        yield store


@pytest.fixture
def cache_folder(tmp_path: Path) -> Path:
    return tmp_path / "adapter-cache"


@pytest.fixture
def serving(sim_redis_url: str, cache_folder: Path) -> Serving:
    """A whole worker with this engine and this cache, which is ready, for the block."""

    @asynccontextmanager
    async def serve(engine: SimEngine) -> AsyncIterator[RunningWorker]:
        async with running_worker(sim_redis_url, engine, adapter_cache=cache_folder) as running:
            await running.ready()
            yield running

    return serve
