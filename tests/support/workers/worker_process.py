"""A worker with the simulated engine as a process of its own: what ends or blocks it leaves the
test's event loop alone."""

import asyncio
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import WorkerInfo
from tests.support.places import ROOT

COMMAND = [sys.executable, "-m", "gpu_workers", "--engine", "sim", "--model", "sim"]


@asynccontextmanager
async def worker_process(redis_url: str, folder: Path, **settings: str) -> AsyncIterator[Process]:
    """Killed with the block, if it has not ended by then. `settings` are flags of its command."""
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    environ = {"PYTHONPATH": str(ROOT), "PENSTOCK_DISPATCH_REDIS_URL": redis_url}
    process = await asyncio.create_subprocess_exec(*COMMAND, *flags, cwd=folder, env=environ)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def published(redis: Redis, pool: str = "sim") -> WorkerInfo | None:
    """What the pool's one worker publishes of itself; None before it has registered."""
    found = cast("list[bytes]", await redis.hvals(keys.pool_workers(pool)))
    return codec.decode_worker_info(found[0]) if found else None
