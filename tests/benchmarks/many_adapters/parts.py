"""The parts of the proof, each on an engine of its own."""

import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from tests.benchmarks.many_adapters import traffic, weights
from tests.benchmarks.many_adapters.alone import Answers, Job
from tests.benchmarks.many_adapters.cast import tenants_of, versions_of
from tests.benchmarks.many_adapters.pool import CHILD, PYTHONS, Pool, a_pool
from tests.benchmarks.many_adapters.report import MIB, Loads, Measured
from tests.benchmarks.many_adapters.traffic import Ask
from tests.benchmarks.many_adapters.verdict import References
from tests.benchmarks.many_adapters.worker import VARIABLE
from tests.support.gateways.cast import MODEL
from tests.support.places import ROOT

SLOTS: Final = {"vllm": 8, "sim": 4}
IN_MEMORY_WHILE_LOADING: Final = 64
_READINGS: Final = 20
_PROGRESS_EVERY: Final = 500

# As exact as it gets, so that answers can be compared; and no pause of the simulation's own.
_SETTINGS: Final = {
    "PENSTOCK_DTYPE": "float32",
    "PENSTOCK_SIM_STEP_MS": "1",
    "PENSTOCK_SIM_ADAPTER_LOAD_MS": "0",
}


class Sides:
    """The engines of the proof, with the same tenants and adapters; `folder` is for what they leave
    on disk, `bug` what is planted in those that have adapters."""

    def __init__(self, *, engine: str, folder: Path, tenants: int, adapters: int, bug: str) -> None:
        self.engine = engine
        self.tenants = tenants_of(tenants)
        self.versions = versions_of(self.tenants, adapters)
        self.folder = folder
        self._slots = SLOTS[engine]
        self._bug = {VARIABLE: bug}

    @property
    def adapter_kib(self) -> float:
        return len(weights.stored("", 0).plain) / 1024

    async def without_adapters(self, asks: list[Ask], references: References) -> Measured:
        """Ask the base instead of each adapter."""
        async with self._served("without", {}) as pool:
            return await _measured(pool, traffic.as_base(asks), references)

    async def with_all_in_memory(self, asks: list[Ask], references: References) -> Measured:
        settings = _slots(self._slots, len(self.versions))
        async with self._served("with", self._bug | settings) as pool:
            return await _measured(pool, asks, references)

    async def load_many(self, asks: list[Ask], references: References) -> Loads:
        """Ask where few are in memory; read the memory meanwhile."""
        in_memory = max(self._slots, min(IN_MEMORY_WHILE_LOADING, len(self.versions) // 2))
        async with self._served("loads", self._bug | _slots(self._slots, in_memory)) as pool:
            readings = [(0, pool.memory_bytes() / MIB)]

            def read(done: int) -> None:
                _tell(len(asks), done)
                if done % max(1, len(asks) // _READINGS) == 0:
                    readings.append((done, pool.memory_bytes() / MIB))

            answered = await traffic.run(pool, asks, after_each=read)
            return Loads(
                in_memory=in_memory,
                loads=await pool.loads(),
                verdict=references.verdict(answered),
                memory_mib=readings,
            )

    @asynccontextmanager
    async def _served(self, name: str, settings: dict[str, str]) -> AsyncIterator[Pool]:
        """A worker of its own, started anew."""
        folder = self.folder / name
        folder.mkdir()
        async with (
            a_pool(self.tenants, self.versions if settings else []) as pool,
            pool.served_by(self.engine, folder, _SETTINGS | settings),
        ):
            if self.engine == "vllm":
                await traffic.fill_kv_cache(pool)
            yield pool


def answers_alone(sides: Sides, file: Path, *, is_new: bool) -> Answers:
    """Return what the base and each adapter answer alone: what a file has of it, or anew, which
    then is in the file."""
    if is_new:
        written = {
            seed: str(weights.write_folder(sides.folder / "alone" / str(seed), seed))
            for seed in {version.seed for version in sides.versions}
        }
        adapters = {version.opaque: written[version.seed] for version in sides.versions}
        answers = _alone(sides, {}, {}) | _alone(sides, adapters, _slots(1, 1))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(msgspec.msgpack.encode(answers))
        _say(f"{sides.engine}: {len(answers)} have answered alone")
    return msgspec.msgpack.decode(file.read_bytes(), type=Answers)


def _alone(sides: Sides, adapters: dict[str, str], settings: dict[str, str]) -> Answers:
    """Ask in a process of the engine's environment."""
    settings = _SETTINGS | settings
    settings |= {
        "PENSTOCK_WORKER_ENGINE": sides.engine,
        "PENSTOCK_WORKER_MODEL": MODEL,
        "PENSTOCK_DISPATCH_REDIS_URL": "redis://nobody-asks-it",
    }
    job, answers = sides.folder / "job", sides.folder / "answers"
    job.write_bytes(msgspec.json.encode(Job(settings=settings, adapters=adapters)))
    subprocess.run(
        [PYTHONS[sides.engine], "-m", "tests.benchmarks.many_adapters.alone", job, answers],
        cwd=ROOT,
        env=os.environ | CHILD,
        check=True,
    )
    return msgspec.msgpack.decode(answers.read_bytes(), type=Answers)


async def _measured(pool: Pool, asks: list[Ask], references: References) -> Measured:
    answered = await traffic.run(pool, asks, after_each=partial(_tell, len(asks)))
    verdict = references.verdict(answered)
    memory_mib = pool.memory_bytes() / MIB
    _say(f"{memory_mib:.0f} MiB, {verdict}")
    return Measured(verdict=verdict, loads=await pool.loads(), memory_mib=memory_mib)


def _slots(slots: int, in_memory: int) -> dict[str, str]:
    return {
        "PENSTOCK_ADAPTER_SLOTS": str(slots),
        "PENSTOCK_ADAPTERS_IN_MEMORY": str(in_memory),
        "PENSTOCK_ADAPTER_MAX_RANK": str(weights.RANK),
    }


def _tell(count: int, done: int) -> None:
    if done % _PROGRESS_EVERY == 0 or done == count:
        _say(f"{done} of {count} requests")


def _say(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S} {text}", flush=True)
