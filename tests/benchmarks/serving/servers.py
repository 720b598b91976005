"""The three sides of `make bench`, started with the same model and engine arguments."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gpu_workers.demo_model import MODEL_FOLDER
from tests.benchmarks import sides
from tests.benchmarks.load.generator import RoundRunner, round_runner
from tests.benchmarks.load.rounds import Door
from tests.benchmarks.measured import ENGINE, LOAD, Side, pin, split_cores
from tests.benchmarks.processes import children
from tests.benchmarks.serving.workloads import Cores
from tests.support.live_stack import run_live_stack
from tests.support.reference_vllm import ENGINE_PYTHON, reference_vllm

CEILING = "AsyncLLM in process"


@contextmanager
def running_sides(
    cores: Cores, names: list[str], generator: RoundRunner, log: Path
) -> Iterator[list[Side]]:
    """Run the sides of these names until the block ends."""
    pinned = cores is Cores.PINNED
    engine_cores, other_cores = split_cores() if pinned else (set(), set())
    environ = {"VLLM_CPU_OMP_THREADS_BIND": _listed(engine_cores)} if pinned else {}
    with ExitStack() as exits:
        stack = exits.enter_context(run_live_stack(**environ))
        slots, model = stack.slots, stack.model
        running = [sides.penstock(stack, generator)]
        if sides.VLLMS in names:
            reference = reference_vllm(
                MODEL_FOLDER, model, log / "vllm.log", max_num_seqs=slots, environ=environ
            )
            running.append(sides.vllm(exits.enter_context(reference), model, generator))
        if CEILING in names:
            running.append(exits.enter_context(_ceiling(slots, environ, log)))
        if pinned:
            for side in running:
                pin(side, engine=engine_cores, others=other_cores)
        yield [side for side in running if side.name in names]


@contextmanager
def _ceiling(slots: int, environ: dict[str, str], log: Path) -> Iterator[Side]:
    """It generates load itself, so all of its process stands in front of the engine."""
    command = [str(ENGINE_PYTHON), "-m", "tests.benchmarks.serving.ceiling", str(slots)]
    with (
        (log / "ceiling.log").open("wb") as file,
        round_runner(command, environ=os.environ | environ, log=file) as runner,
    ):
        yield Side(
            name=CEILING,
            run=runner.run,
            programs=lambda: {
                "AsyncLLM": [runner.pid],
                ENGINE: children(runner.pid),
                LOAD: [],
            },
            skips=lambda round_: round_.door is not Door.CHAT,
        )


def _listed(cores: set[int]) -> str:
    return ",".join(map(str, sorted(cores)))
