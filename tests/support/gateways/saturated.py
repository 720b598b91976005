"""A pool whose only slot is taken."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from gpu_workers.protocol import keys
from tests.support.gateways.scripted_worker import Run, ScriptedWorker, count_to_three
from tests.support.gateways.service import Service
from tests.support.polling import eventually

# What a request holds a slot for, on average.
HELD_MS = 5000
_ASK = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 10}


@asynccontextmanager
async def saturated(service: Service, worker: ScriptedWorker, model: str) -> AsyncIterator[None]:
    """Bob has the worker's only slot until the end of the block. What comes later counts."""
    is_over = asyncio.Event()

    async def hold_first(run: Run) -> None:
        if len(worker.runs) == 1:
            await is_over.wait()
        await count_to_three(run)

    worker.script = hold_first
    await worker.start(slots=1)
    await worker.redis.hset(keys.pool_scheduler(worker.pool), "held_ms", HELD_MS)
    async with service.client(service.bob) as client:
        task = asyncio.create_task(
            client.post("/v1/chat/completions", json={**_ASK, "model": model})
        )
        await eventually(lambda: len(worker.runs) == 1)
        try:
            yield
        finally:
            is_over.set()
            assert (await task).status_code == 200
