"""The simulated workers of a run: one that is quick, and for a while one that is slow beside it.
They join the stack as any worker on this machine does, and end with the run."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from local_stack.credentials import NOT_FOR_WORKERS
from local_stack.services import guarded

QUICK: Final = {"PENSTOCK_SIM_STEP_MS": "15", "PENSTOCK_WORKER_SLOTS": "24"}
SLOW: Final = {"PENSTOCK_SIM_STEP_MS": "150", "PENSTOCK_WORKER_SLOTS": "24"}
_END_SECONDS: Final = 20.0


class SimulatedWorker:
    """Runs from its making until `end`, or until this process dies. `environ` has the dispatch
    Redis of the stack."""

    def __init__(
        self,
        root: Path,
        var: Path,
        name: str,
        settings: Mapping[str, str],
        environ: Mapping[str, str],
    ) -> None:
        ours = {
            **environ,
            **dict.fromkeys(NOT_FOR_WORKERS, ""),
            **settings,
            # That of `make up`'s own workers may serve their pool alone.
            "PENSTOCK_DISPATCH_REDIS_URL": environ["PENSTOCK_DISPATCH_REDIS_URL"],
            "PENSTOCK_DISPATCH_REDIS_URL_FILE": "",
            "PENSTOCK_WORKER_NAME": name,
            "PENSTOCK_WORKER_OUTBOX": str(var / "outbox" / name),
            "PENSTOCK_WORKER_DRAIN_SECONDS": "5",
            "PYTHONPATH": f"{root}:{root / 'platform'}",
        }
        python = str(root / ".venv" / "bin" / "python")
        command = [python, "-m", "gpu_workers", "--engine", "sim", "--model", "sim"]
        with (var / "log" / f"{name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                guarded(command), cwd=root, env=ours, stdout=log, stderr=subprocess.STDOUT
            )

    def end(self) -> None:
        """Let it drain and leave; kill it if it does not."""
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
