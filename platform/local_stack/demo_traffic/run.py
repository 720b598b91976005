"""A run: the tenants' keys, the simulated workers, all programs at work, a line a minute."""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
from control_plane.private_files import write_private_text

from local_stack.demo_adapters import SLUG, TENANTS
from local_stack.demo_traffic.account import Account
from local_stack.demo_traffic.asking import ANSWERED, LEFT, UNREACHED, Asking
from local_stack.demo_traffic.cast import PROGRAMS, Model
from local_stack.demo_traffic.course import FLOODED, SLOW_WORKER
from local_stack.demo_traffic.workers import QUICK, SLOW, SimulatedWorker

Say = Callable[[str], None]
StartWorker = Callable[[str, Mapping[str, str]], SimulatedWorker]

KEYS_FILE: Final = "demo-traffic.json"
_REQUEST_SECONDS: Final = 120.0
_CONNECTIONS: Final = 256
_LINE_SECONDS: Final = 60.0


class Run:
    """So many minutes of traffic on the stack whose `var` this is. What became of the requests is
    in `outcomes`, also where a run was interrupted."""

    def __init__(
        self,
        var: Path,
        demo_env: Mapping[str, str],
        start_worker: StartWorker,
        *,
        minutes: float,
        seed: int,
        say: Say,
    ) -> None:
        self.outcomes: Counter[str] = Counter()
        self._keys_file = var / KEYS_FILE
        self._demo_env = demo_env
        self._start_worker = start_worker
        self._seconds = minutes * 60.0
        self._draw = random.Random(seed)
        self._say = say
        self._began = 0.0

    def play(self) -> None:
        """Begin and end it. Raises `ServiceError` where an owner may not prepare it."""
        keys = self._keys()
        with self._worker("sim-quick", QUICK):
            self._began = time.monotonic()
            asyncio.run(self._all(keys))

    def summary(self) -> str:
        """Say in one line what became of the requests."""
        refused = self.outcomes.copy()
        parts = [f"{refused.pop(each, 0):,} {each}" for each in (ANSWERED, LEFT)]
        unreached = refused.pop(UNREACHED, 0)
        codes = ", ".join(f"{count:,} {code}" for code, count in refused.most_common())
        parts.append(f"{refused.total():,} refused" + (f" ({codes})" if codes else ""))
        if unreached:
            parts.append(f"{unreached:,} {UNREACHED}")
        return ", ".join(parts)

    def _keys(self) -> dict[str, str]:
        """Return a key for each program. They are kept in a file that only its owner can read, so
        that the next run goes on with them."""
        try:
            kept = json.loads(self._keys_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            kept = {}
        keys: dict[str, str] = {}
        for tenant in TENANTS:
            account = Account(self._demo_env, tenant)
            try:
                keys |= account.keys_for([each for each in PROGRAMS if each.tenant == tenant], kept)
            finally:
                account.close()
                write_private_text(self._keys_file, json.dumps(kept | keys))
        return keys

    def _moment(self) -> float:
        return (time.monotonic() - self._began) / self._seconds

    async def _all(self, keys: Mapping[str, str]) -> None:
        limits = httpx.Limits(max_connections=_CONNECTIONS)
        async with (
            httpx.AsyncClient(
                base_url=self._demo_env["PENSTOCK_URL"],
                timeout=_REQUEST_SECONDS,
                limits=limits,
                trust_env=False,
            ) as http,
            asyncio.TaskGroup() as tasks,
        ):
            for program in PROGRAMS:
                asking = Asking(
                    program,
                    keys[program.name],
                    http=http,
                    names=self._names(program.tenant),
                    moment=self._moment,
                    outcomes=self.outcomes,
                    draw=random.Random(self._draw.random()),
                )
                tasks.create_task(asking.run())
            tasks.create_task(self._scenes())
            tasks.create_task(self._lines())

    def _names(self, tenant: str) -> dict[Model, str]:
        model = self._demo_env["PENSTOCK_MODEL"]
        return {Model.DEMO: model, Model.SUPPORT: f"{tenant}/{SLUG}", Model.SIMULATED: "sim"}

    async def _scenes(self) -> None:
        """Have the slow worker come and go, and say what begins."""
        await self._until(SLOW_WORKER.begins)
        self._say("A slow worker joins the pool sim.")
        slow = self._start_worker("sim-slow", SLOW)
        try:
            await self._until(SLOW_WORKER.ends)
        finally:
            await asyncio.to_thread(slow.end)
        self._say("The slow worker has left.")
        await self._until(FLOODED.begins)
        self._say("Globex's nightly reports flood the pool sim.")
        await self._until(FLOODED.ends)
        self._say("The flood is over.")

    async def _until(self, moment: float) -> None:
        await asyncio.sleep((moment - self._moment()) * self._seconds)

    async def _lines(self) -> None:
        while self._moment() < 1.0:
            await asyncio.sleep(min(_LINE_SECONDS, self._seconds))
            minutes = (time.monotonic() - self._began) / 60.0
            self._say(f"{minutes:3.0f} min: {self.summary()}")

    @contextmanager
    def _worker(self, name: str, settings: Mapping[str, str]) -> Iterator[None]:
        worker = self._start_worker(name, settings)
        try:
            yield
        finally:
            worker.end()
