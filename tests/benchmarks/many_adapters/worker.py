"""A worker as `python -m gpu_workers` starts it, with a bug if PENSTOCK_PROOF_BUG names one: the
proof must find it.

    unmended  vLLM's own LoRA kernels for CPUs (docs/adr/0032), and no probe that finds that out
    salt      all tenants' prompts are cached under one salt
    other     each twentieth request with an adapter gets the one that was asked for before
    base      each twentieth request with an adapter gets the base, in silence
"""

import itertools
import os
import sys
from collections.abc import AsyncIterator
from typing import Any, Final

from msgspec import structs

from gpu_workers.__main__ import main, make_engine
from gpu_workers.config import WorkerConfig
from gpu_workers.engine import BeginTexts, Engine, EngineDescription, Output, Result
from gpu_workers.process_tree import die_with_parent
from gpu_workers.protocol.messages import Envelope
from gpu_workers.vllm import arguments
from gpu_workers.vllm.engine import VllmEngine

VARIABLE: Final = "PENSTOCK_PROOF_BUG"
BUGS: Final = ("unmended", "salt", "other", "base")
_EVERY: Final = 20

BUG: Final = os.environ.get(VARIABLE, "")


class UnmendedVllm(VllmEngine):
    """Its kernels are vLLM's own, and nobody looks whether they keep adapters apart."""

    async def open(self) -> EngineDescription:
        from gpu_workers.vllm import probes

        async def is_believed(*_: Any) -> bool:
            return True

        vars(probes)["keeps_apart"] = is_believed
        return await super().open()


class BuggyEngine:
    """The engine itself, but for what reaches it of a request."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._numbers = itertools.count(1)
        self._before = ""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def generate(
        self, envelope: Envelope, begin_texts: BeginTexts | None = None
    ) -> AsyncIterator[Output | Result]:
        changes = self._changes(envelope.adapter)
        async for each in self._engine.generate(structs.replace(envelope, **changes), begin_texts):
            yield each

    def _changes(self, adapter: str) -> dict[str, str]:
        if BUG == "salt":
            return {"cache_salt": "c2FsdA"}
        if not adapter:
            return {}
        is_struck = next(self._numbers) % _EVERY == 0
        before, self._before = self._before, adapter
        return {"adapter": before if BUG == "other" else ""} if is_struck else {}


def make(config: WorkerConfig) -> Engine:
    if BUG == "unmended":
        vars(arguments)["EXTENSION"] = f"{__package__}.unmended.UnmendedWorker"
        return UnmendedVllm(config)
    engine = make_engine(config)
    return BuggyEngine(engine) if BUG else engine


if __name__ == "__main__":
    if BUG and BUG not in BUGS:
        sys.exit(f"{VARIABLE} is {BUG}; expected one of {', '.join(BUGS)}.")
    die_with_parent()
    sys.exit(main(make))
