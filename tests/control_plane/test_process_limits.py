"""No crash of a process of ours leaves an image of its memory, whatever its parent allows."""

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from local_stack.services import GUARD
from redis.asyncio import Redis

from tests.support.gateways.processes import a_gateway_process, a_sim_worker
from tests.support.places import ROOT
from tests.support.polling import eventually_sync

NO_CORE = ["0", "0"]
PRINT_LIMITS = "print(open('/proc/self/limits').read())"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's /proc")


@pytest.fixture(autouse=True)
def _cores_are_allowed() -> Iterator[None]:
    """What a process inherits where nobody has thought of it."""
    before = resource.getrlimit(resource.RLIMIT_CORE)
    if before[1] == 0:
        pytest.skip("whoever started the tests has turned core dumps off")
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_CORE, before)


def core_limits(limits: str) -> list[str]:
    """The soft and the hard one."""
    (line,) = (each for each in limits.splitlines() if each.startswith("Max core file size"))
    return line.split()[4:6]


def of(process: asyncio.subprocess.Process) -> list[str]:
    return core_limits(Path(f"/proc/{process.pid}/limits").read_text())


def printed(*command: str) -> list[str]:
    ran = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return core_limits(ran.stdout)


def test_without_us_there_would_be_a_core() -> None:
    assert printed("-c", PRINT_LIMITS) != NO_CORE


def test_a_command_leaves_none() -> None:
    assert printed("manage.py", "shell", "--no-imports", "-c", PRINT_LIMITS) == NO_CORE


async def test_a_gateway_leaves_none(dispatch_redis: Redis, dispatch_redis_url: str) -> None:
    async with a_gateway_process(dispatch_redis_url) as (_, process):
        assert of(process) == NO_CORE


async def test_a_worker_leaves_none(dispatch_redis: Redis, dispatch_redis_url: str) -> None:
    async with a_sim_worker(dispatch_redis_url) as process:
        assert of(process) == NO_CORE


@pytest.mark.parametrize(
    "process",
    [
        ["worker", "--queues", "of-nobody", "--pool", "solo", "--without-gossip"],
        ["beat", "--schedule", "schedule", "--pidfile", ""],
    ],
    ids=lambda process: process[0],
)
def test_a_process_of_celery_leaves_none(process: list[str], tmp_path: Path) -> None:
    url = urlsplit(os.environ["PENSTOCK_REDIS_URL"])
    apart = url._replace(path="/15").geturl()
    started = subprocess.Popen(
        [sys.executable, "-m", "celery", "--app", "control_plane.celery", *process],
        cwd=tmp_path,
        env={
            **os.environ,
            "PENSTOCK_REDIS_URL": apart,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'platform'}",
        },
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    limits = Path(f"/proc/{started.pid}/limits")
    try:
        eventually_sync(lambda: core_limits(limits.read_text()) == NO_CORE, 30)
    finally:
        started.kill()
        started.wait()


def test_a_web_process_leaves_none() -> None:
    asgi = f"import control_plane.asgi; {PRINT_LIMITS}"
    assert printed("-c", asgi) == NO_CORE


def test_a_server_that_is_started_beside_us_leaves_none() -> None:
    assert printed(str(GUARD), "--", sys.executable, "-c", PRINT_LIMITS) == NO_CORE
