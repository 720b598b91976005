"""Both sides of `make bench-front`: whole servers over a replayed engine each."""

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local_stack import programs
from local_stack.programs import Program
from local_stack.services import guarded
from local_stack.supervisor import Supervisor

from gpu_workers.demo_model import MODEL_FOLDER
from tests.benchmarks import sides
from tests.benchmarks.front.pace import PACE, count_steps, set_pace
from tests.benchmarks.front.sampler import Sampled
from tests.benchmarks.load.generator import RoundRunner
from tests.benchmarks.measured import Side
from tests.benchmarks.sides import OURS, VLLMS
from tests.support.live_stack import run_live_stack
from tests.support.places import ROOT, free_port
from tests.support.reference_vllm import ENGINE_PYTHON, reference_vllm
from tests.support.stack_addresses import LiveStack

# Alone it takes 25 s; beside four other busy processes on two cores more than 120.
START_SECONDS = 300
WORKER, WEB = "worker-0", "web"


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The replayed engines of both sides, whose sockets lie in `folder`."""

    slots: int
    folder: Path

    def environ(self, side: str) -> dict[str, str]:
        return {PACE: str(self._socket(side))}

    def set_pace(self, step_ms: float) -> None:
        """Set the least time between steps; 0: as fast as they are taken."""
        for side in (OURS, VLLMS):
            set_pace(self._socket(side), step_ms)

    def count_steps(self, side: str) -> int:
        return count_steps(self._socket(side))

    def _socket(self, side: str) -> Path:
        return self.folder / ("ours" if side == OURS else "vllms")


@dataclass(kw_only=True)
class Sampling:
    """The processes of Penstock that write samples of themselves, and where to."""

    folder: Path
    pids: dict[str, int] = field(default_factory=dict)

    def file(self, program: str) -> Path:
        return self.folder / f"{program}.samples"


@contextmanager
def front_sides(
    replay: Replay, generator: RoundRunner, sampling: Sampling | None = None
) -> Iterator[list[Side]]:
    """Run both sides until the block ends."""
    with ExitStack() as stack:
        live = stack.enter_context(_penstock(replay, sampling))
        started = live.started
        reference = reference_vllm(
            MODEL_FOLDER,
            live.stack.model,
            replay.folder / "vllm.log",
            max_num_seqs=replay.slots,
            module="tests.benchmarks.front.vllm_server",
            environ=replay.environ(VLLMS) | {"PYTHONPATH": str(ROOT)},
        )
        server = stack.enter_context(reference)
        both = [
            sides.penstock(live.stack, generator, started_by_us=lambda: started),
            sides.vllm(server, live.stack.model, generator),
        ]
        yield [dataclasses.replace(each, steps=_steps(replay, each.name)) for each in both]


def _steps(replay: Replay, side: str) -> Callable[[], int]:
    return lambda: replay.count_steps(side)


@dataclass(frozen=True, kw_only=True)
class _Running:
    stack: LiveStack
    started: dict[str, int]


@contextmanager
def _penstock(replay: Replay, sampling: Sampling | None) -> Iterator[_Running]:
    """Run a stack, with a worker over the replayed engine in its worker's place. With `sampling`
    its web process is replaced too, by one that samples itself."""
    with ExitStack() as exits:
        # The simulated engine is up at once, and leaves its place to the replayed one.
        stack = exits.enter_context(run_live_stack(PENSTOCK_WORKER_ENGINE="sim"))
        supervisor = Supervisor(ROOT, stack.var_folder / "run", stack.var_folder / "log")
        replaced = {"worker": (WORKER, _worker(stack, replay, sampling))}
        if sampling is not None:
            replaced["gateway"] = (WEB, _web(stack, sampling))
        started = {}
        supervisor.stop_programs([name for name, _ in replaced.values()], timeout_seconds=30)
        stack.manage("pin_pool", stack.model, "--next")
        for shown, (name, program) in replaced.items():
            log = (stack.var_folder / "log" / f"{name}-of-benchmark.log").open("wb")
            process = exits.enter_context(_running(program, stack.environ, log))
            started[shown] = process.pid
        if sampling is not None:
            sampling.pids = started
        _wait_for_worker(stack, started["worker"])
        yield _Running(stack=stack, started=started)


def _worker(stack: LiveStack, replay: Replay, sampling: Sampling | None) -> Program:
    """Return the stack's own worker program, over the replayed engine."""
    (program,) = programs.worker_programs(
        ENGINE_PYTHON,
        (None,),
        model=stack.model,
        metrics_port=free_port(),
        redis_url_file=stack.var_folder / "run" / "worker-redis-url",
        outbox_folder=stack.var_folder / "outbox",
    )
    arguments = ["-m", "tests.benchmarks.front.worker"]
    if sampling is not None:
        arguments = Sampled.arguments(sampling.file("worker"), arguments[1])
    more = replay.environ(OURS) | {
        "PENSTOCK_WORKER_ENGINE": "vllm",
        "PENSTOCK_MAX_NUM_SEQS": str(replay.slots),
    }
    return Program(
        name=program.name,
        command=guarded([str(ENGINE_PYTHON), *arguments]),
        environ={**program.environ, **more},
    )


def _web(stack: LiveStack, sampling: Sampling) -> Program:
    program = programs.web_program(int(stack.url.rpartition(":")[2]))
    module = program.command.index("uvicorn")
    arguments = Sampled.arguments(sampling.file("gateway"), "uvicorn")
    command = [sys.executable, *arguments, *program.command[module + 1 :]]
    return Program(name=program.name, command=guarded(command))


@contextmanager
def _running(
    program: Program, environ: Mapping[str, str], log: Any
) -> "Iterator[subprocess.Popen[bytes]]":
    with log:
        process = subprocess.Popen(
            program.command,
            cwd=ROOT,
            env=os.environ | {**environ, **program.environ},
            stdout=log,
            stderr=log,
            process_group=0,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()


def _wait_for_worker(stack: LiveStack, pid: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not _is_ready(stack, pid):
        if time.monotonic() > deadline:
            raise RuntimeError(f"the worker over the replayed engine is not ready: {stack}")
        time.sleep(0.2)


def _is_ready(stack: LiveStack, pid: int) -> bool:
    try:
        return stack.worker().pid == pid
    except ValueError:
        return False  # nobody is
