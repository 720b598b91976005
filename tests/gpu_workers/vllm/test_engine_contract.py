"""One contract, two engines."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator

import pytest

from gpu_workers.config import DEMO_MODEL_PATH
from gpu_workers.engine import EngineDescription
from gpu_workers.sim.engine import SimEngine
from tests.support.places import ROOT
from tests.support.workers.abort_contract import ABORT_CLAUSES
from tests.support.workers.asking import Clause
from tests.support.workers.counted_engine import CountedEngine
from tests.support.workers.engine_contract import CLAUSES
from tests.support.workers.resumption_contract import RESUMPTION_CLAUSES
from tests.support.workers.vllm_contract import VLLM_CLAUSES

ENGINE_PYTHON = ROOT / ".venv-engine" / "bin" / "python"
START_AND_RUN_SECONDS = 300


async def at_once(seconds: float) -> None:
    """Time passes without waiting."""
    await asyncio.sleep(0)


@pytest.fixture
async def sim() -> AsyncIterator[tuple[SimEngine, EngineDescription]]:
    engine = SimEngine(slots=16, sleep=at_once)
    yield engine, await engine.start()
    await engine.stop()


@pytest.mark.parametrize(
    "clause", [*CLAUSES, *ABORT_CLAUSES, *RESUMPTION_CLAUSES], ids=lambda clause: clause.__name__
)
async def test_the_simulated_engine_keeps(
    clause: Clause, sim: tuple[SimEngine, EngineDescription]
) -> None:
    engine, description = sim
    counted = CountedEngine(engine)
    await clause(counted, description)
    await counted.adds_up()


@pytest.fixture(scope="module")
def vllm_outcomes() -> dict[str, str | None]:
    if not ENGINE_PYTHON.exists() or not DEMO_MODEL_PATH.exists():
        pytest.skip("needs the engine environment and the demo model: run `make up` once")
    module = "tests.support.workers.run_engine_contract"
    command = [str(ENGINE_PYTHON), "-m", module, str(DEMO_MODEL_PATH)]
    finished = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=START_AND_RUN_SECONDS
    )
    assert finished.returncode == 0, finished.stderr[-4000:]
    outcomes: dict[str, str | None] = json.loads(finished.stdout.splitlines()[-1])
    return outcomes


@pytest.mark.engine
@pytest.mark.parametrize(
    "clause",
    [*CLAUSES, *ABORT_CLAUSES, *RESUMPTION_CLAUSES, *VLLM_CLAUSES],
    ids=lambda clause: clause.__name__,
)
def test_vllm_keeps(clause: Clause, vllm_outcomes: dict[str, str | None]) -> None:
    failure = vllm_outcomes[clause.__name__]
    assert failure is None, failure
