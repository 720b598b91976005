"""Runs the contract on vLLM, one engine for all clauses; for the engine environment's Python.

    .venv-engine/bin/python -m tests.support.workers.run_engine_contract FOLDER
        [--may-be-degraded] [SETTING=VALUE ...]

A vLLM that may be degraded is not asked what its probes find, nor for what they had it do without.
Prints one JSON object: the clause's name -> null, or the traceback of its failure; and on stderr
each clause as it ends, for who must stop before all have.
"""

import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import uvloop

from gpu_workers.config import WorkerConfig
from gpu_workers.process_tree import adopt_children
from gpu_workers.vllm.engine import VllmEngine
from tests.support.workers.abort_contract import ABORT_CLAUSES
from tests.support.workers.adapters.contract import ADAPTER_CLAUSES
from tests.support.workers.adapters.effect_contract import ADAPTER_EFFECT_CLAUSES
from tests.support.workers.adapters.loads_contract import ADAPTER_LOAD_CLAUSES
from tests.support.workers.counted_engine import CountedEngine
from tests.support.workers.engine_contract import CLAUSES
from tests.support.workers.liveness_contract import FIRST_CLAUSE, LIVENESS_CLAUSES
from tests.support.workers.probe_clauses import PROBE_CLAUSES
from tests.support.workers.resumption_contract import RESUMPTION_CLAUSES
from tests.support.workers.short_paths.streams_contract import STREAM_CLAUSES
from tests.support.workers.structure_contract import STRUCTURE_CLAUSES
from tests.support.workers.vllm_contract import VLLM_CLAUSES


async def run(model_path: str, options: list[str]) -> dict[str, str | None]:
    settings = [each for each in options if "=" in each]
    may_be_degraded = "--may-be-degraded" in options
    config = WorkerConfig.from_environ(
        {
            "PENSTOCK_DISPATCH_REDIS_URL": "redis://not-used",
            "PENSTOCK_MODEL_PATH": model_path,
            "PENSTOCK_WORKER_MODEL": "sim",  # the name that the contract's envelopes carry
            "PENSTOCK_MAX_NUM_SEQS": "16",
            # In bfloat16 who is asked beside others moves a log-probability by 0.06: where two
            # tokens are as likely, a greedy answer is another one then.
            "PENSTOCK_DTYPE": "float32",
            "PENSTOCK_STRUCTURE_SECONDS": "1",
            "PENSTOCK_TOOL_CALL_PARSER": "hermes",
            "PENSTOCK_ADAPTER_SLOTS": "4",
            "PENSTOCK_ADAPTERS_IN_MEMORY": "8",
            "PENSTOCK_ADAPTER_MAX_RANK": "8",
            **dict(setting.split("=", 1) for setting in settings),
        }
    )
    outcomes: dict[str, str | None] = {}
    engine = VllmEngine(config)
    try:
        description = await engine.start()
        await engine.warm_up()
        # Before any other has asked for what it asks for.
        with _recorded(outcomes, FIRST_CLAUSE.__name__):
            await FIRST_CLAUSE(engine, description)
        for clause in [
            *CLAUSES,
            *ABORT_CLAUSES,
            *LIVENESS_CLAUSES,
            *RESUMPTION_CLAUSES,
            *ADAPTER_CLAUSES,
            *ADAPTER_LOAD_CLAUSES,
            *ADAPTER_EFFECT_CLAUSES,
            *VLLM_CLAUSES,
            *STREAM_CLAUSES,
            *STRUCTURE_CLAUSES,
        ]:
            if may_be_degraded and clause in RESUMPTION_CLAUSES and not description.can_resume:
                outcomes[clause.__name__] = None
                continue
            with _recorded(outcomes, clause.__name__):
                counted = CountedEngine(engine)
                await clause(counted, description)
                await counted.adds_up()
        for probe_clause in [] if may_be_degraded else PROBE_CLAUSES:
            with _recorded(outcomes, probe_clause.__name__):
                await probe_clause(engine)
    finally:
        await engine.stop()
    return outcomes


@contextmanager
def _recorded(outcomes: dict[str, str | None], name: str) -> Iterator[None]:
    outcomes[name] = None
    try:
        yield
    except Exception:  # noqa: BLE001 - each failure is one line of the report
        outcomes[name] = traceback.format_exc()
    sys.stderr.write(f"{outcomes[name] or ''}{'failed' if outcomes[name] else 'kept'}: {name}\n")


if __name__ == "__main__":
    adopt_children()
    sys.stdout.write(json.dumps(uvloop.run(run(sys.argv[1], sys.argv[2:]))) + "\n")
