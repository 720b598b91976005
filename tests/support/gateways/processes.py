"""Gateways and workers in processes of their own, as in production."""

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
from redis.asyncio import Redis

from inference.dispatch.worker_registry import WorkerRegistry
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.service import PEPPER
from tests.support.places import NO_TLS, ROOT, free_port
from tests.support.polling import eventually

START_SECONDS = 30


@contextlib.asynccontextmanager
async def a_sim_worker(
    dispatch_redis_url: str,
    name: str = "sim-of-the-tests",
    *,
    outbox: Path | None = None,
    **environ: str,
) -> AsyncIterator[Process]:
    """A ready worker of the pool with the simulated engine; its process leads a group. `outbox` is
    a folder to be found again by the next one."""
    with tempfile.TemporaryDirectory(prefix="penstock-outbox-") as folder:
        environ |= {"PENSTOCK_WORKER_OUTBOX": str(outbox or folder)}
        async with _a_sim_worker(dispatch_redis_url, name, environ) as process:
            yield process


@contextlib.asynccontextmanager
async def _a_sim_worker(
    dispatch_redis_url: str, name: str, environ: dict[str, str]
) -> AsyncIterator[Process]:
    command = [sys.executable, "-m", "gpu_workers", "--engine", "sim", "--model", MODEL]
    command += ["--pool", POOL, "--name", name, "--metrics-port", "0"]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={**os.environ, "PENSTOCK_DISPATCH_REDIS_URL": dispatch_redis_url, **environ},
        stdout=DEVNULL,
        stderr=DEVNULL,
        process_group=0,
    )
    try:
        async with Redis.from_url(dispatch_redis_url) as redis:
            await eventually(lambda: WorkerRegistry(redis).is_ready(POOL), START_SECONDS)
        yield process
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


@contextlib.asynccontextmanager
async def a_gateway(dispatch_redis_url: str, *, pepper: bytes = PEPPER) -> AsyncIterator[str]:
    """The address of a gateway that answers."""
    async with a_gateway_process(dispatch_redis_url, pepper=pepper) as (url, _):
        yield url


@contextlib.asynccontextmanager
async def a_gateway_process(
    dispatch_redis_url: str, *, pepper: bytes = PEPPER
) -> AsyncIterator[tuple[str, Process]]:
    """The same with its process."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "control_plane.gateway:application"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}",
            "PENSTOCK_API_KEY_PEPPER": pepper.decode(),
            "PENSTOCK_DISPATCH_REDIS_URL": dispatch_redis_url,
        },
        stdout=DEVNULL,
        stderr=DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        await eventually(lambda: _answers(url), START_SECONDS)
        yield url, process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _answers(url: str) -> bool:
    async with httpx.AsyncClient(base_url=url, verify=NO_TLS) as client:
        try:
            return (await client.get("/v1/models")).status_code == 401
        except httpx.TransportError:
            return False
