"""Sides of a comparison, measured round by round in turns: never two of them under load at once."""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median

from tests.benchmarks.load.rounds import Round, RoundResult
from tests.benchmarks.processes import cpu_seconds, group_by_program, memory_bytes, run_on

ENGINE, LOAD = "engine", "load generator"
QUIET_SECONDS, QUIET_SHARE, MOST_WAITED_SECONDS = 0.4, 0.15, 15.0


@dataclass(frozen=True, kw_only=True)
class Side:
    """One server, or what stands in for it. `programs()` names the first processes of each program;
    ENGINE and LOAD are not in front of the engine. `skips` are rounds that it has no way for;
    `steps` counts the engine's so far, where that is known."""

    name: str
    run: Callable[[Round], RoundResult]
    programs: Callable[[], dict[str, list[int]]]
    skips: Callable[[Round], bool] = lambda round_: False
    steps: Callable[[], int] = lambda: 0


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """One round of one side. `cpu`: program -> seconds, from the first request until the side was
    quiet again, so that what is done after a request's end is in it. `memory`: program -> bytes."""

    result: RoundResult
    cpu: dict[str, float]
    memory: dict[str, int]
    steps: int = 0

    @property
    def in_front(self) -> dict[str, float]:
        """Return the CPU seconds of all but engine and load generator."""
        return {name: seconds for name, seconds in self.cpu.items() if name not in (ENGINE, LOAD)}


@dataclass(frozen=True, kw_only=True)
class Spread:
    """A figure over the rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        every = sorted(values)
        return cls(median=median(every), low=every[0], high=every[-1])


@dataclass(kw_only=True)
class Comparison:
    """One workload on every side: name of the side -> its rounds."""

    name: str
    round: Round
    sides: dict[str, list[Measurement]] = field(default_factory=dict)


def compare(
    name: str, sides: list[Side], make_round: Callable[[int], Round], *, rounds: int
) -> Comparison:
    """Run `rounds` rounds on every side in turns, each turn's order the reverse of the last, after
    a shorter one each that warms up. `make_round` makes the round of a number, 0 for warm-up."""
    warm_up = make_round(0)
    taking_part = [side for side in sides if not side.skips(warm_up)]
    comparison = Comparison(name=name, round=make_round(1))
    for side in taking_part:
        side.run(warm_up)
        _wait_until_quiet(side)
        comparison.sides[side.name] = []
    for number in range(1, rounds + 1):
        for side in taking_part if number % 2 else reversed(taking_part):
            comparison.sides[side.name].append(measure(side, make_round(number)))
    return comparison


def measure(side: Side, round_: Round) -> Measurement:
    """Run one round and read what it cost."""
    before, steps = _cpu(side), side.steps()
    result = side.run(round_)
    steps = side.steps() - steps
    memory = {name: memory_bytes(pids) for name, pids in _groups(side).items()}
    _wait_until_quiet(side)
    after = _cpu(side)
    cpu = {name: max(0.0, seconds - before.get(name, 0.0)) for name, seconds in after.items()}
    return Measurement(result=result, cpu=cpu, memory=memory, steps=steps)


def measure_idle(side: Side, seconds: float) -> dict[str, float]:
    """Return what share of a core each program takes while nobody asks for anything."""
    _wait_until_quiet(side)
    before, began = _cpu(side), time.monotonic()
    time.sleep(seconds)
    passed = time.monotonic() - began
    return {name: (cpu - before.get(name, 0.0)) / passed for name, cpu in _cpu(side).items()}


def pin(side: Side, *, engine: set[int], others: set[int]) -> None:
    """Let the engine run on some cores, and all else on others."""
    for name, pids in _groups(side).items():
        run_on(pids, engine if name == ENGINE else others)


def split_cores() -> tuple[set[int], set[int]]:
    """Return the engine's core and all others that we may use. Raises `SystemExit` if there is only
    one."""
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        raise SystemExit("Pinning needs two cores or more; this process may use one.")
    return {first}, set(others)


def _wait_until_quiet(side: Side) -> None:
    """Wait until a side takes no more than a share of a core, but not for ever."""
    deadline = time.monotonic() + MOST_WAITED_SECONDS
    before = sum(_cpu(side).values())
    while time.monotonic() < deadline:
        time.sleep(QUIET_SECONDS)
        now = sum(_cpu(side).values())
        if now - before <= QUIET_SHARE * QUIET_SECONDS:
            return
        before = now


def _groups(side: Side) -> dict[str, list[int]]:
    return group_by_program(side.programs())


def _cpu(side: Side) -> dict[str, float]:
    return {name: cpu_seconds(pids) for name, pids in _groups(side).items()}
