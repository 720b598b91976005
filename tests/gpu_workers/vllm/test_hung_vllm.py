"""An engine process of the real vLLM that is stopped: it lives, answers nothing, and is found."""

import asyncio
import os
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from gpu_workers.config import DEMO_MODEL_PATH
from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Outcome, WorkerState
from gpu_workers.worker import Exit
from tests.support.places import ROOT
from tests.support.polling import eventually
from tests.support.processes.children import children_of
from tests.support.workers.envelopes import make_envelope
from tests.support.workers.listening_gateway import FakeGateway
from tests.support.workers.worker_process import ENGINE_PYTHON, published, worker_process

START_SECONDS = 300
ENDLESS: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Go on for ever."}],
    "ignore_eos": True,
}


def tree_of(pid: int) -> list[int]:
    return [pid, *(each for child in children_of(pid) for each in tree_of(child))]


def title_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


@pytest.mark.engine
@pytest.mark.rare
@pytest.mark.stack
async def test_a_stopped_engine_process_is_found_and_leaves_nothing_behind(
    dispatch_redis: Redis, sim_redis_url: str, gateway: FakeGateway, tmp_path: Path
) -> None:
    if not ENGINE_PYTHON.exists() or not DEMO_MODEL_PATH.exists():
        pytest.skip("needs the engine environment and the demo model: run `make up` once")

    async def is_ready() -> bool:
        info = await published(dispatch_redis)
        return info is not None and info.state is WorkerState.READY

    async def is_requeued(request_id: str) -> bool:
        request_key = keys.pool_request("sim", request_id)
        return await dispatch_redis.hget(request_key, "state") == b"queued"

    settings = {"hung_seconds": "5", "compile_cache": str(ROOT / "var" / "compile-cache")}
    async with worker_process(sim_redis_url, tmp_path, engine="vllm", **settings) as worker:
        await eventually(is_ready, START_SECONDS)
        goes_on, ends = [
            await gateway.send(
                make_envelope(ENDLESS, max_output_tokens=1500, is_resumable=is_resumable)
            )
            for is_resumable in (True, False)
        ]
        whole = await gateway.send(make_envelope(ENDLESS, max_output_tokens=1500, stream=False))
        for request_id in (goes_on, ends):
            await gateway.delta_of(request_id)
        tree = tree_of(worker.pid)
        os.kill(next(pid for pid in tree if "EngineCore" in title_of(pid)), signal.SIGSTOP)
        terminal = await gateway.terminal_of(ends, seconds=60)
        for request_id in (goes_on, whole):
            await eventually(partial(is_requeued, request_id), 10)
        async with asyncio.timeout(60):
            assert await worker.wait() == Exit.ENGINE_HUNG
    assert terminal.outcome is Outcome.FAILED
    assert terminal.error is not None
    assert terminal.error.code == "engine_failed"
    assert terminal.usage.completion_tokens > 0
    assert not gateway.terminals.keys() & {goes_on, whole}
    await eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in tree), 20)
