"""Runs a module and samples where its CPU time goes: `python -m ...sampler FILE MODULE ARGUMENTS`.

SIGUSR1 begins, SIGUSR2 ends and writes. While it is on, each so many microseconds of CPU time the
stack of the main thread is noted, so time in C counts for the Python line that called it.

The file has a line a stack, outermost frame first: frames joined by `;`, a blank, the samples.
"""

import runpy
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType

INTERVAL_SECONDS = 0.002


class Sampled:
    """A process that runs under the sampler."""

    @staticmethod
    def arguments(file: Path, module: str) -> list[str]:
        return ["-m", "tests.benchmarks.front.sampler", str(file), module]


class Sampler:
    """Counts stacks of (code, line)."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stacks: Counter[tuple[tuple[CodeType, int], ...]] = Counter()

    def install(self) -> None:
        signal.signal(signal.SIGPROF, self._note)
        signal.signal(signal.SIGUSR1, self._begin)
        signal.signal(signal.SIGUSR2, self._end)

    def _begin(self, number: int, frame: FrameType | None) -> None:
        self._stacks.clear()
        signal.setitimer(signal.ITIMER_PROF, INTERVAL_SECONDS, INTERVAL_SECONDS)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self._stacks[tuple(_places(frame))] += 1

    def _end(self, number: int, frame: FrameType | None) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        lines = []
        for stack, count in self._stacks.items():
            places = [
                f"{_module(code)}:{code.co_qualname}:{line}" for code, line in reversed(stack)
            ]
            lines.append(f"{';'.join(places)} {count}\n")
        partial = self._file.with_suffix(".partial")
        partial.write_text("".join(lines), encoding="utf-8")
        partial.rename(self._file)


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a function costs, in shares of all samples: by itself, and with all that it calls."""

    function: str
    alone: float
    total: float


def costs(file: Path) -> list[Cost]:
    """Return every function of a file of samples, the most expensive by itself first."""
    alone: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for line in file.read_text(encoding="utf-8").splitlines():
        stack, _, count = line.rpartition(" ")
        functions = [place.rpartition(":")[0] for place in stack.split(";")]
        alone[functions[-1]] += int(count)
        for function in set(functions):
            total[function] += int(count)
    every = sum(alone.values()) or 1
    return [
        Cost(function=name, alone=alone[name] / every, total=total[name] / every)
        for name in sorted(total, key=lambda each: (-alone[each], -total[each]))
    ]


def _places(frame: FrameType | None) -> Iterator[tuple[CodeType, int]]:
    while frame is not None:
        yield frame.f_code, frame.f_lineno
        frame = frame.f_back


def _module(code: CodeType) -> str:
    """Return the last two parts of a file's path, which tell it apart."""
    return "/".join(Path(code.co_filename).parts[-2:])


if __name__ == "__main__":
    file, module, *arguments = sys.argv[1:]
    Sampler(Path(file)).install()
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
