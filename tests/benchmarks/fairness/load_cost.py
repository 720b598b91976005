"""Measures what a load of an adapter costs the engine's loop, for `loads.LoadModel`.

    .venv-engine/bin/python -m tests.benchmarks.fairness.load_cost [SETTING=VALUE ...]

In one process with vLLM, as `calibrate`, so in CPU time. The loop stands still while vLLM adds an
adapter: from disk it reads it to memory and copies it to a slot, from memory it copies alone. Where
all slots run, the copy takes one of theirs, and the next step copies that back.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final

from gpu_workers.adapter_files import WEIGHTS_FILE, describe_base
from gpu_workers.protocol.adapters import AdapterBase, BaseModule
from gpu_workers.vllm.adapters.worker_extension import LIST_MODULES
from tests.benchmarks.fairness.calibrate import TimedEngine
from tests.support.workers.adapters.lora_files import write_adapter

SLOTS, IN_MEMORY, LOADED = 4, 64, 40
RANKS: Final = (8, 16, 64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("settings", nargs="*", metavar="SETTING=VALUE")
    settings = dict(each.split("=", 1) for each in parser.parse_args().settings)
    cost = LoadCost(
        {
            "PENSTOCK_ADAPTER_SLOTS": str(SLOTS),
            "PENSTOCK_ADAPTERS_IN_MEMORY": str(IN_MEMORY),
            "PENSTOCK_ADAPTER_MAX_RANK": str(max(RANKS)),
            **settings,
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        cost.load(Path(folder), rank=RANKS[0])  # warms up
        print("rank     MB   disk to slot, ms   memory to slot, ms")
        for rank in RANKS:
            loaded = cost.load(Path(folder), rank=rank)
            print(
                f"{rank:4}{loaded.megabytes:7.2f}{median(loaded.disk_ms):19.2f}"
                f"{median(cost.move(loaded.requests)):21.2f}",
                flush=True,
            )


class Loaded:
    """What was loaded, as vLLM calls it, and the milliseconds of each."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.disk_ms: list[float] = []
        self.megabytes = 0.0


class LoadCost:
    """An engine with adapters, one call at a time."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.timed = TimedEngine(settings)
        self.engine = self.timed.engine
        self._ids = count(1)
        self.base = self._base(int(settings["PENSTOCK_ADAPTER_MAX_RANK"]))

    def load(self, folder: Path, *, rank: int, number: int = LOADED) -> Loaded:
        """Load adapters from disk, and forget those of before."""
        for each in self.engine.list_loras():
            self.engine.remove_lora(each)
        loaded = Loaded()
        for request, megabytes in self._written(folder, rank, number):
            loaded.disk_ms.append(milliseconds_of(lambda: self.engine.add_lora(request)))  # noqa: B023
            loaded.requests.append(request)
            loaded.megabytes = megabytes
        return loaded

    def move(self, requests: list[Any]) -> list[float]:
        """Milliseconds in which adapters that are in memory are brought to a slot."""
        return [milliseconds_of(lambda: self.engine.add_lora(each)) for each in requests]  # noqa: B023

    def _written(self, folder: Path, rank: int, number: int) -> Iterator[tuple[Any, float]]:
        """New adapters on disk, with their megabytes."""
        from vllm.lora.request import LoRARequest

        for _ in range(number):
            seed = next(self._ids)
            adapter = write_adapter(folder, self.base, seed, rank=rank)
            size = (adapter.folder / WEIGHTS_FILE).stat().st_size
            request = LoRARequest(
                lora_name=adapter.name, lora_int_id=10**6 + seed, lora_path=str(adapter.folder)
            )
            yield request, size / 1e6

    def _base(self, max_rank: int) -> AdapterBase:
        [rows] = self.engine.collective_rpc(LIST_MODULES)
        modules = [BaseModule(name=n, in_features=i, out_features=o) for n, i, o in rows]
        return describe_base(model="demo", configuration=b"", max_rank=max_rank, modules=modules)


def milliseconds_of(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return (time.process_time() - began) * 1000


if __name__ == "__main__":
    main()
