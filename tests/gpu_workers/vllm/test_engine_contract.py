"""One contract, two engines."""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from local_stack import newest_engine

from gpu_workers.config import DEMO_MODEL_PATH
from gpu_workers.engine import EngineDescription
from gpu_workers.sim.engine import SimEngine
from tests.support.places import ROOT
from tests.support.workers.abort_contract import ABORT_CLAUSES
from tests.support.workers.adapters.contract import ADAPTER_CLAUSES
from tests.support.workers.adapters.effect_contract import ADAPTER_EFFECT_CLAUSES
from tests.support.workers.adapters.loads_contract import ADAPTER_LOAD_CLAUSES
from tests.support.workers.asking import Clause
from tests.support.workers.counted_engine import CountedEngine
from tests.support.workers.engine_contract import CLAUSES
from tests.support.workers.liveness_contract import FIRST_CLAUSE, LIVENESS_CLAUSES
from tests.support.workers.probe_clauses import PROBE_CLAUSES, ProbeClause
from tests.support.workers.resumption_contract import RESUMPTION_CLAUSES
from tests.support.workers.short_paths.streams_contract import STREAM_CLAUSES
from tests.support.workers.structure_contract import STRUCTURE_CLAUSES
from tests.support.workers.vllm_contract import VLLM_CLAUSES

ENGINE_PYTHON = ROOT / ".venv-engine" / "bin" / "python"
# A bound for what hangs: it takes three minutes alone on two cores, and others share them.
START_AND_RUN_SECONDS = 1_200
# Made by `make newest-engine`, unless the environment names another.
NEWEST_ENGINE_PYTHON = Path(
    os.environ.get("NEWEST_ENGINE_PYTHON") or ROOT / newest_engine.FOLDER / "bin" / "python"
)
NEWEST_REASON = ROOT / newest_engine.REASON
SHARED_CLAUSES = [
    *CLAUSES,
    *ABORT_CLAUSES,
    *LIVENESS_CLAUSES,
    *RESUMPTION_CLAUSES,
    *ADAPTER_CLAUSES,
    *ADAPTER_LOAD_CLAUSES,
    *ADAPTER_EFFECT_CLAUSES,
]


async def at_once(seconds: float) -> None:
    """Time passes without waiting."""
    await asyncio.sleep(0)


@pytest.fixture
async def sim() -> AsyncIterator[tuple[SimEngine, EngineDescription]]:
    engine = SimEngine(
        slots=16,
        sleep=at_once,
        adapter_slots=4,
        adapters_in_memory=8,
        adapter_max_rank=8,
        adapter_load_seconds=0.001,
    )
    yield engine, await engine.start()
    await engine.stop()


@pytest.mark.parametrize("clause", SHARED_CLAUSES, ids=lambda clause: clause.__name__)
async def test_the_simulated_engine_keeps(
    clause: Clause, sim: tuple[SimEngine, EngineDescription]
) -> None:
    engine, description = sim
    counted = CountedEngine(engine)
    await clause(counted, description)
    await counted.adds_up()


def outcomes_on(python: Path, *options: str) -> dict[str, str | None]:
    """What each clause came to on the vLLM of an environment: one engine for all of them."""
    if not DEMO_MODEL_PATH.exists():
        pytest.skip("needs the demo model: run `make up` once")
    module = "tests.support.workers.run_engine_contract"
    command = [str(python), "-m", module, str(DEMO_MODEL_PATH), *options]
    finished = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=START_AND_RUN_SECONDS
    )
    assert finished.returncode == 0, finished.stderr[-4000:]
    outcomes: dict[str, str | None] = json.loads(finished.stdout.splitlines()[-1])
    return outcomes


@pytest.fixture(scope="module")
def vllm_outcomes() -> dict[str, str | None]:
    if not ENGINE_PYTHON.exists():
        pytest.skip("needs the engine environment: run `make up` once")
    return outcomes_on(ENGINE_PYTHON)


@pytest.mark.engine
@pytest.mark.parametrize(
    "clause",
    [
        FIRST_CLAUSE,
        *SHARED_CLAUSES,
        *VLLM_CLAUSES,
        *STREAM_CLAUSES,
        *STRUCTURE_CLAUSES,
        *PROBE_CLAUSES,
    ],
    ids=lambda clause: clause.__name__,
)
def test_vllm_keeps(clause: Clause | ProbeClause, vllm_outcomes: dict[str, str | None]) -> None:
    failure = vllm_outcomes[clause.__name__]
    assert failure is None, failure


@pytest.fixture(scope="module")
def newest_outcomes() -> dict[str, str | None]:
    if not NEWEST_ENGINE_PYTHON.exists():
        reason = NEWEST_REASON.read_text().strip() if NEWEST_REASON.exists() else "not made"
        pytest.skip(f"no newer vLLM than the pinned one is installed: {reason}")
    return outcomes_on(NEWEST_ENGINE_PYTHON, "--may-be-degraded")


@pytest.mark.engine
@pytest.mark.rare
@pytest.mark.parametrize(
    "clause",
    [FIRST_CLAUSE, *SHARED_CLAUSES, *VLLM_CLAUSES, *STREAM_CLAUSES, *STRUCTURE_CLAUSES],
    ids=lambda clause: clause.__name__,
)
def test_the_newest_vllm_keeps(clause: Clause, newest_outcomes: dict[str, str | None]) -> None:
    """With whatever its probes have it do without."""
    failure = newest_outcomes[clause.__name__]
    assert failure is None, failure
