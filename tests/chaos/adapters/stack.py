"""The stack of the other drills with adapters: a control plane that takes uploads, a process that
validates them, a store, two tenants that each have a `support`, workers that load them."""

import asyncio
import os
import shutil
import signal
import tempfile
from asyncio.subprocess import Process
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from gpu_workers.protocol import keys
from gpu_workers.protocol.adapters import AdapterLevel
from tests.chaos.adapters.stores import Store
from tests.chaos.adapters.tenant import MAX_RANK, AdapterTenant, packed
from tests.chaos.processes import STEP_MS, SimWorker, until
from tests.chaos.stack import STACK_START_SECONDS, Stack
from tests.support.places import LOOPBACK, NO_TLS, free_port

SLOTS = 4
IN_MEMORY = 6
LOAD_MS = 300


@dataclass(frozen=True, kw_only=True)
class Forgotten:
    """Versions, one tenant's and the other's, whose validator was killed; `seconds` until both had
    their end, looked for beside whatever is done meanwhile."""

    good: int
    bad: int
    seconds: "asyncio.Task[float]"


class AdapterStack(Stack):
    """Each worker has a cache of its own, as on a machine of its own. What processes write to the
    temporary folder is in `temporary`."""

    def __init__(self, store: Store, model: str = "chaos-adapters") -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-chaos-adapters-"))
        self.temporary = self._folder / "tmp"
        self.temporary.mkdir()
        self.store = store
        self._port = free_port()
        self._url = f"http://{LOOPBACK}:{self._port}"
        environ = {
            "PENSTOCK_PUBLIC_URL": self._url,
            "PENSTOCK_BLOB_STORE_URL": store.url,
            "PENSTOCK_ADAPTER_SLOTS": str(SLOTS),
            "PENSTOCK_ADAPTERS_IN_MEMORY": str(IN_MEMORY),
            "PENSTOCK_ADAPTER_MAX_RANK": str(MAX_RANK),
            "PENSTOCK_SIM_ADAPTER_LOAD_MS": str(LOAD_MS),
            "TMPDIR": str(self.temporary),
        }
        super().__init__(model, **environ, **store.environ)
        self.tenants: list[AdapterTenant] = []
        self.forgotten: Forgotten | None = None
        self.web: Process
        self.validator: Process

    async def start(self) -> None:
        """With a first version of each tenant's adapter that is ready."""
        await self.store.start()
        await super().start()
        await self.start_web()
        await self.start_validator()
        for number, name in enumerate(("Acme", "Globex")):
            made = await self.add_tenant(f"{name} {self.model}", "inference", "adapters:write")
            tenant = AdapterTenant(self._url, *made)
            self.tenants.append(tenant)
            await until(tenant.is_known)
            await tenant.add_adapter(self.model)
            await tenant.add_ready_version(packed(number + 1))

    async def stop(self) -> None:
        for tenant in self.tenants:
            await tenant.close()
        await super().stop()
        await self.store.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def start_web(self) -> None:
        command = ["-m", "uvicorn", "control_plane.asgi:application", "--host", LOOPBACK]
        command += ["--port", str(self._port), "--log-level", "error", "--no-proxy-headers"]
        self.web = await self.processes.start(*command)
        await until(self._is_up, STACK_START_SECONDS)

    async def kill_web(self) -> None:
        os.killpg(self.web.pid, signal.SIGKILL)
        await self.web.wait()

    async def start_validator(self) -> None:
        command = ["-m", "celery", "--app", "control_plane.celery", "worker"]
        command += ["--queues", "adapters", "--pool", "solo", "--loglevel", "ERROR"]
        command += ["--without-gossip", "--without-mingle", "--hostname", "adapters@drills"]
        self.validator = await self.processes.start(*command)

    async def kill_validator(self) -> None:
        os.killpg(self.validator.pid, signal.SIGKILL)
        await self.validator.wait()

    async def add_worker(self, *, step_ms: int = STEP_MS, name: str = "") -> SimWorker:
        if not name:
            self._names += 1
            name = f"sim-{self._names}"
        worker = await self.processes.worker(
            name,
            self.worker_url,
            self.model,
            step_ms=step_ms,
            PENSTOCK_ADAPTER_CACHE=str(self.cache_of(name)),
        )
        self.workers.append(worker)
        return worker

    async def kill_worker(self, worker: SimWorker) -> None:
        self.workers.remove(worker)
        worker.signal(signal.SIGKILL)
        await worker.process.wait()

    async def prefetch_nothing(self, seconds: int = 60) -> None:
        """Have no worker try out a new version meanwhile: a worker has what is asked for there."""
        from django.core.cache import cache

        from inference.adapters.prefetching import gate_of

        await cache.aset(gate_of(self.model), 1, timeout=seconds)

    def cache_of(self, name: str) -> Path:
        return self._folder / f"cache-{name}"

    def sealed(self, name: str) -> list[Path]:
        """What a worker keeps of adapters."""
        return sorted((self.cache_of(name) / "sealed").glob("*"))

    def left_by_validators(self) -> list[Path]:
        """What is in the temporary folder of uploads."""
        return [each for each in self.temporary.rglob("*") if each.is_file()]

    async def levels(self, opaque_name: str) -> dict[str, int]:
        """How near each worker has an adapter, as dispatch knows it, by the worker's name."""
        key = keys.pool_adapter_workers(self.model, opaque_name)
        found: Any = await self.redis.zrange(key, 0, -1, withscores=True)
        return {worker.decode().partition("#")[0]: int(level) for worker, level in found}

    async def holds(self, name: str, opaque_name: str) -> bool:
        """Whether a worker has told that it has an adapter."""
        return (await self.levels(opaque_name)).get(name, 0) >= AdapterLevel.DISK

    async def until_jailed(self, seconds: float = 60.0) -> int:
        """Return the process that looks at an upload, as soon as there is one. Raises
        TimeoutError."""
        found: list[int] = []

        async def is_any() -> bool:
            found[:] = _jailed_below(self.validator.pid)
            return bool(found)

        await until(is_any, seconds, every_seconds=0.002)
        return found[0]

    async def _is_up(self) -> bool:
        async with httpx.AsyncClient(base_url=self._url, verify=NO_TLS) as client:
            try:
                return (await client.get("/healthz")).status_code == httpx.codes.OK
            except httpx.TransportError:
                return False


def _jailed_below(pid: int) -> list[int]:
    is_child = b"validation/child.py"
    return [each for each in _descendants(pid) if is_child in _read(Path(f"/proc/{each}/cmdline"))]


def _descendants(pid: int) -> Iterator[int]:
    for task in Path(f"/proc/{pid}/task").glob("*"):
        for child in _read(task / "children").split():
            yield int(child)
            yield from _descendants(int(child))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
