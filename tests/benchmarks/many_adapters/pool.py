"""One gateway's use case in this process, one worker in a process of its own, Redis between them,
and a store of adapters on loopback."""

import asyncio
import os
import re
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

from redis.asyncio import Redis

from gpu_workers.process_tree import PARENT_VARIABLE
from gpu_workers.protocol.policy import Caller, Scope
from inference.lifecycle.completions import Completions, GatewaySettings
from inference.redis_functions import LIBRARIES, library_text
from tests.benchmarks.many_adapters import weights
from tests.benchmarks.many_adapters.cast import Version
from tests.benchmarks.processes import group_by_program, memory_bytes
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.service import PEPPER, Snapshot, a_tier
from tests.support.places import LOOPBACK, ROOT, free_port
from tests.support.polling import eventually
from tests.support.servers import servers
from tests.support.workers.adapters.store import AdapterStore

PYTHONS: Final = {"sim": Path(sys.executable), "vllm": ROOT / ".venv-engine" / "bin" / "python"}
# Of a program in the engine's environment, or ours, that ends with this one.
CHILD: Final = {"PYTHONPATH": str(ROOT), PARENT_VARIABLE: str(os.getpid())}
START_SECONDS: Final = 300.0
# Nobody is refused here, or gives up.
_NO_LIMIT: Final = 10**6
_QUEUE_SECONDS: Final = 600
_LOADED: Final = re.compile(rb'^penstock_worker_adapter_loads_total\{.*outcome="loaded".*\} (\S+)$')


class Pool:
    """What requests go through, once a worker serves it."""

    def __init__(self, completions: Completions, callers: Mapping[str, Caller]) -> None:
        self.completions = completions
        self.callers = callers
        self.has_logprobs = False
        self._worker: Process | None = None
        self._metrics_port = 0

    @asynccontextmanager
    async def served_by(
        self, engine: str, folder: Path, settings: Mapping[str, str]
    ) -> AsyncIterator[None]:
        """A worker serves it until the block ends. `settings` are of its environment; what it logs
        is in `folder`."""
        self._metrics_port = free_port()
        self.has_logprobs = engine == "vllm"
        environ = {
            "PENSTOCK_WORKER_ENGINE": engine,
            "PENSTOCK_WORKER_MODEL": MODEL,
            "PENSTOCK_WORKER_POOL": POOL,
            "PENSTOCK_WORKER_NAME": "proof",
            "PENSTOCK_WORKER_METRICS_PORT": str(self._metrics_port),
            "PENSTOCK_WORKER_OUTBOX": str(folder / "outbox"),
            "PENSTOCK_ADAPTER_CACHE": str(folder / "cache"),
            "PENSTOCK_DISPATCH_REDIS_URL": servers().dispatch_redis.url,
            "PENSTOCK_LOG_LEVEL": "warning",
            **settings,
        }
        with (folder / "worker.log").open("ab") as log:
            self._worker = await asyncio.create_subprocess_exec(
                str(PYTHONS[engine]),
                *("-m", "tests.benchmarks.many_adapters.worker"),
                cwd=ROOT,
                env=os.environ | CHILD | environ,
                stdout=log,
                stderr=log,
            )
        try:
            await eventually(self._is_ready, START_SECONDS)
            yield
        finally:
            if self._worker.returncode is None:
                self._worker.terminate()
            await self._worker.wait()

    async def while_served(self, work: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Do all of it. Raises an exception group if the worker ends meanwhile: its requests would
        wait for another."""
        assert self._worker is not None
        async with asyncio.TaskGroup() as group:
            ending = group.create_task(_raise_when_ended(self._worker))
            await asyncio.gather(*(group.create_task(each) for each in work))
            ending.cancel()

    async def kv_cache_tokens(self) -> int:
        (worker,) = await self.completions.workers.workers(POOL)
        return worker.info.kv_cache_tokens

    def memory_bytes(self) -> int:
        """Return what the worker and all its processes have in memory."""
        assert self._worker is not None
        return memory_bytes(group_by_program({"worker": [self._worker.pid]})["worker"])

    async def loads(self) -> int:
        """Return how many adapters the worker has loaded since its start."""
        text = await asyncio.to_thread(_scrape, self._metrics_port)
        return sum(int(float(found[1])) for line in text if (found := _LOADED.match(line)))

    async def _is_ready(self) -> bool:
        assert self._worker is not None
        if self._worker.returncode is not None:
            raise RuntimeError(f"the worker has ended with {self._worker.returncode}")
        return await self.completions.workers.is_ready(POOL)


@asynccontextmanager
async def a_pool(tenants: Iterable[str], versions: Iterable[Version]) -> AsyncIterator[Pool]:
    """A pool with these tenants and adapters, and nothing else in its Redis."""
    url = servers().dispatch_redis.url
    async with Redis.from_url(url, socket_timeout=None) as redis:
        await redis.flushall()
        for library in LIBRARIES:
            await redis.function_load(library_text(library), replace=True)
        snapshot = Snapshot(redis)
        await snapshot.add_model(MODEL)
        keys = {tenant: await _add_tenant(snapshot, tenant) for tenant in tenants}
        completions = Completions(
            GatewaySettings(dispatch_redis_url=url, api_key_pepper=PEPPER, cache_salt_secret=b"s")
        )
        async with AdapterStore(redis, POOL).running() as store:
            await _add_versions(snapshot, store, versions)
            await completions.start()
            try:
                callers = {
                    tenant: await completions.admission.authenticate(
                        f"Bearer {key}", address=None, scope=Scope.INFERENCE
                    )
                    for tenant, key in keys.items()
                }
                yield Pool(completions, callers)
            finally:
                await completions.stop()


async def _add_tenant(snapshot: Snapshot, tenant: str) -> str:
    tier = a_tier(
        requests_per_minute=_NO_LIMIT,
        max_concurrent_requests=_NO_LIMIT,
        ttft_target_ms=_QUEUE_SECONDS * 1000,
        max_queue_seconds=_QUEUE_SECONDS,
    )
    return await snapshot.add_key(tenant, tier=tier)


async def _add_versions(
    snapshot: Snapshot, store: AdapterStore, versions: Iterable[Version]
) -> None:
    """Half of what names no version gets the first, half the second."""
    numbers: dict[str, list[int]] = {}
    for version in versions:
        numbers.setdefault(version.name, []).append(version.number)
        await store.offer(await asyncio.to_thread(weights.stored, version.opaque, version.seed))
    for name, known in numbers.items():
        await snapshot.put_adapter(name, {number: 1000 // len(known) for number in known})


async def _raise_when_ended(worker: Process) -> None:
    raise RuntimeError(f"the worker has ended with {await worker.wait()}")


def _scrape(port: int) -> list[bytes]:
    with urlopen(f"http://{LOOPBACK}:{port}/metrics", timeout=10) as answer:
        text: bytes = answer.read()
    return text.splitlines()
