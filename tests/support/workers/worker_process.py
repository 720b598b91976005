"""A worker as a process of its own: what ends or blocks it leaves the test's event loop alone."""

import asyncio
import os
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

ENGINE_PYTHON = ROOT / ".venv-engine" / "bin" / "python"


@asynccontextmanager
async def worker_process(
    redis_url: str, folder: Path, *, engine: str = "sim", **settings: str
) -> AsyncIterator[Process]:
    """Serves the pool `sim`; killed with the block, if it has not ended by then. `settings` are
    flags of its command."""
    python = sys.executable if engine == "sim" else str(ENGINE_PYTHON)
    settings = {"engine": engine, "model": "sim", **settings}
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    process = await asyncio.create_subprocess_exec(
        python,
        *("-m", "gpu_workers", *flags),
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PENSTOCK_DISPATCH_REDIS_URL": redis_url},
    )
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
