"""`python -m gpu_workers` as a newcomer runs it."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from redis.asyncio import Redis

from tests.support.places import ROOT
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway

COMMAND = [sys.executable, "-m", "gpu_workers", "--engine", "sim", "--model", "sim"]


@pytest.mark.stack
async def test_one_command_joins_the_stack_that_demo_env_describes_and_sigterm_drains_it(
    dispatch_redis: Redis, tmp_path: Path
) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "demo.env").write_text(
        # The control plane's user, as `make up` leaves it there.
        f"PENSTOCK_DISPATCH_REDIS_URL={os.environ['PENSTOCK_DISPATCH_REDIS_URL']}\n"
    )
    gateway = FakeGateway(dispatch_redis)
    await gateway.appear()
    worker = await asyncio.create_subprocess_exec(
        *COMMAND, "--sim-step-ms", "1", cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}
    )
    try:
        request_id = await gateway.send(make_envelope(max_output_tokens=4))
        assert (await gateway.terminal_of(request_id)).usage.completion_tokens == 4
        worker.terminate()
        async with asyncio.timeout(10):
            assert await worker.wait() == 0
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()


def test_wrong_settings_stop_the_start_with_a_line_for_each(tmp_path: Path) -> None:
    finished = subprocess.run(
        [*COMMAND, "--slots", "none", "--sim-step-ms", "-1"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert finished.returncode == 1
    for variable in (
        "PENSTOCK_DISPATCH_REDIS_URL",
        "PENSTOCK_WORKER_SLOTS",
        "PENSTOCK_SIM_STEP_MS",
    ):
        assert variable in finished.stderr


def test_the_simulated_worker_imports_neither_django_nor_torch_nor_vllm() -> None:
    program = (
        "import sys, gpu_workers.__main__, gpu_workers.sim.engine; "
        "print(*({'django', 'torch', 'vllm', 'transformers'} & set(sys.modules)))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=30
    )
    assert (finished.returncode, finished.stdout.strip()) == (0, "")
