"""How long the machine, and this program, stood still by themselves: no gap of a stream says
anything about Penstock for as long as a process that does nothing is not woken either."""

import asyncio
import subprocess
import sys
import time
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

_NAP_SECONDS: Final = 0.02
_LEAST_SECONDS: Final = 0.1
# Says when it was woken late, and by how much. `perf_counter` is the same clock in all processes.
_SLEEPER: Final = f"""
import os, time
parent = os.getppid()
while os.getppid() == parent:
    asleep = time.perf_counter()
    time.sleep({_NAP_SECONDS})
    awake = time.perf_counter()
    if awake - asleep > {_LEAST_SECONDS}:
        print(asleep, awake, flush=True)
"""

Span = tuple[float, float]


@dataclass(kw_only=True)
class Standstill:
    """Watches while it is open. Times of `time.perf_counter`."""

    of_machine: list[Span] = field(default_factory=list)
    of_program: list[Span] = field(default_factory=list)

    async def __aenter__(self) -> "Standstill":
        self._sleeper = subprocess.Popen(  # noqa: ASYNC220 - it is not waited for
            [sys.executable, "-c", _SLEEPER], stdout=subprocess.PIPE, text=True
        )
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._watching.cancel()
        self._sleeper.terminate()
        lines, _ = await asyncio.to_thread(self._sleeper.communicate)
        spans = [line.split() for line in lines.splitlines()]
        self.of_machine += [(float(span[0]), float(span[1])) for span in spans if len(span) == 2]

    async def _watch(self) -> None:
        while True:
            asleep = time.perf_counter()
            await asyncio.sleep(_NAP_SECONDS)
            awake = time.perf_counter()
            if awake - asleep > _LEAST_SECONDS:
                self.of_program.append((asleep, awake))


def seconds_within(spans: list[Span], begin: float, end: float) -> float:
    """Return for how long of this time one of the spans lasted."""
    return sum(max(0.0, min(end, last) - max(begin, first)) for first, last in spans)
