"""The processes that the drills kill, stop and wait for: each leads a group, and ends with us."""

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
from local_stack.services import guarded

from tests.support.places import LOOPBACK, ROOT, free_port

START_SECONDS = 60.0
# Of the last run, to be read when it failed.
LOGS = ROOT / "var" / "chaos-log"
STEP_MS = 50
# `python -m`, with a wall clock that a drill can set.
STEPPED = ("-m", "tests.support.stepped_clock")
SLOTS = 100


class Processes:
    """Started by `start`, ended by `stop`; `environ` is that of all of them. Their logs' names
    begin with `label`."""

    def __init__(self, environ: dict[str, str], label: str = "") -> None:
        paths = f"{ROOT}{os.pathsep}{ROOT / 'platform'}"
        self._environ = {**os.environ, **environ, "PYTHONPATH": paths}
        self._label = label
        self._started: list[Process] = []
        self._logs: dict[int, Path] = {}
        self.outboxes = Path(tempfile.mkdtemp(prefix="penstock-chaos-outboxes-"))

    async def start(self, *command: str, **environ: str) -> Process:
        LOGS.mkdir(parents=True, exist_ok=True)
        path = LOGS / f"{self._label}{len(self._started)}-{command[1].rpartition('.')[2]}.log"
        with path.open("wb") as log:
            process = await asyncio.create_subprocess_exec(
                *guarded([sys.executable, *command]),
                cwd=ROOT,
                env={**self._environ, **environ},
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
            )
        self._started.append(process)
        self._logs[process.pid] = path
        return process

    def log_of(self, process: Process) -> str:
        return self._logs[process.pid].read_text(errors="replace")

    async def worker(
        self, name: str, redis_url: str, model: str, *, step_ms: int = STEP_MS, **environ: str
    ) -> "SimWorker":
        """A worker with the simulated engine, one step in `step_ms`, `SLOTS` at once."""
        port = free_port()
        command = [*STEPPED, "gpu_workers", "--engine", "sim", "--model", model, "--name", name]
        command += ["--slots", str(SLOTS), "--sim-step-ms", str(step_ms)]
        command += ["--metrics-port", str(port)]
        environ |= {"PENSTOCK_DISPATCH_REDIS_URL": redis_url}
        environ["PENSTOCK_WORKER_OUTBOX"] = str(self.outboxes / name)
        process = await self.start(*command, **environ)
        return SimWorker(process, f"http://{LOOPBACK}:{port}", name)

    async def gateway(self, **environ: str) -> "Gateway":
        port = free_port()
        command = [*STEPPED, "uvicorn", "control_plane.gateway:application", "--host", LOOPBACK]
        command += ["--port", str(port), "--log-level", "error", "--no-proxy-headers"]
        gateway = Gateway(await self.start(*command, **environ), f"http://{LOOPBACK}:{port}")
        await until(gateway.answers)
        return gateway

    async def stop(self) -> None:
        for process in self._started:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._started:
            await process.wait()
        shutil.rmtree(self.outboxes, ignore_errors=True)


class SimWorker:
    def __init__(self, process: Process, url: str, name: str) -> None:
        self.process = process
        self.url = url
        self.name = name

    def signal(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    async def pause(self, seconds: float) -> None:
        self.signal(signal.SIGSTOP)
        await asyncio.sleep(seconds)
        self.signal(signal.SIGCONT)


class Gateway:
    def __init__(self, process: Process, url: str) -> None:
        self.process = process
        self.url = url

    def kill(self) -> None:
        os.killpg(self.process.pid, signal.SIGKILL)

    async def answers(self) -> bool:
        async with httpx.AsyncClient(base_url=self.url) as client:
            try:
                return (await client.get("/v1/models")).status_code in (401, 503)
            except httpx.TransportError:
                return False


async def metric(url: str, name: str) -> float:
    """The sum over a metric's labels."""
    async with httpx.AsyncClient(base_url=url) as client:
        lines = (await client.get("/metrics")).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


async def until(
    is_so: Callable[[], Awaitable[bool]],
    seconds: float = START_SECONDS,
    *,
    every_seconds: float = 0.05,
) -> float:
    """How many seconds it took; raises TimeoutError."""
    started = time.monotonic()
    while not await is_so():
        if time.monotonic() - started > seconds:
            raise TimeoutError(f"{is_so.__qualname__} was not so within {seconds:g} s")
        await asyncio.sleep(every_seconds)
    return time.monotonic() - started
