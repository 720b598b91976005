"""vLLM's own OpenAI server on the same model and engine arguments, to compare ourselves with."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from local_stack.services import guarded

from gpu_workers.config import WorkerConfig
from gpu_workers.vllm.arguments import weights_type
from tests.support.places import LOOPBACK, NO_TLS, ROOT, free_port

ENGINE_PYTHON = ROOT / ".venv-engine" / "bin" / "python"
START_TIMEOUT_SECONDS = 240
ENGINE = WorkerConfig.from_environ({"PENSTOCK_DISPATCH_REDIS_URL": "redis://127.0.0.1"})


@dataclass(frozen=True, kw_only=True)
class ReferenceServer:
    """A running server; its engine's processes are below `pid`."""

    url: str
    pid: int


@contextmanager
def reference_vllm(
    model_path: Path,
    model: str,
    log_file: Path,
    *,
    max_num_seqs: int,
    module: str = "vllm.entrypoints.openai.api_server",
    arguments: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Iterator[ReferenceServer]:
    """Run vLLM's server, which `module` starts, on a free loopback port until the block or this
    process ends. `arguments` are further ones of its command line, `environ` further variables."""
    port = free_port()
    url = f"http://{LOOPBACK}:{port}"
    full_environ = os.environ | {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        **(environ or {}),
    }
    command = [
        str(ENGINE_PYTHON),
        *("-m", module),
        *("--host", LOOPBACK, "--port", str(port)),
        *("--model", str(model_path), "--served-model-name", model),
        *("--max-num-seqs", str(max_num_seqs), "--enforce-eager"),
        *("--dtype", weights_type(ENGINE)),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        "--disable-uvicorn-access-log",
        *arguments,
    ]
    with log_file.open("wb") as log:
        server = subprocess.Popen(
            guarded(command), env=full_environ, stdout=log, stderr=log, cwd=ROOT, process_group=0
        )
    try:
        _wait_until_healthy(url, server, log_file)
        yield ReferenceServer(url=url, pid=server.pid)
    finally:
        server.terminate()
        try:
            server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, 9)
            server.wait()


def _wait_until_healthy(url: str, server: "subprocess.Popen[bytes]", log_file: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(
                f"vLLM's own server ended with {server.returncode}: {log_file.read_text()[-2000:]}"
            )
        try:
            if httpx.get(f"{url}/health", timeout=2, verify=NO_TLS).is_success:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    raise RuntimeError(f"vLLM's own server was not healthy in {START_TIMEOUT_SECONDS} s")
