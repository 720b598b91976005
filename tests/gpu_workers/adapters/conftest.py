"""A store of adapters beside the pool's Redis, and what a worker has of them without the worker."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.support.workers.adapters.store import AdapterStore


@pytest.fixture
async def store(dispatch_redis: Redis) -> AsyncIterator[AdapterStore]:
    async with AdapterStore(dispatch_redis).running() as store:
        yield store


@pytest.fixture
def cache_folder(tmp_path: Path) -> Path:
    return tmp_path / "adapter-cache"
