"""Run what failed again, alone and twice: what failed of one file in a process of its own, whose
fixtures and servers are made once for all of it."""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

from tests.gate.recorder import Failure

TIMES = 2
# More than these in one run are no accident, whatever they do alone.
MOST_UNSTEADY = 5
# With more failures than these the run is red anyway, and looking would only keep people waiting.
MOST_LOOKED_AT = 20
TIMEOUT_SECONDS = 900


@dataclass(frozen=True, kw_only=True)
class Try:
    """One more run of a test. `seconds` and `output` are those of its process, with the servers and
    with what else of its file had failed."""

    has_passed: bool
    seconds: float
    output: str


@dataclass(frozen=True, kw_only=True)
class Look:
    failure: Failure
    tries: tuple[Try, ...]

    @property
    def is_unsteady(self) -> bool:
        """It failed among others and passes alone; what fails alone too is broken."""
        return all(one.has_passed for one in self.tries)


def look_again(
    failures: Iterable[Failure], folder: Path, options: Sequence[str], environ: Mapping[str, str]
) -> Iterator[Look]:
    """Yield what became of each failed test, whose name is relative to `folder`."""
    for _, group in groupby(sorted(failures, key=_file), key=_file):
        of_one_file = list(group)
        tries: dict[str, list[Try]] = {failure.test: [] for failure in of_one_file}
        for _ in range(TIMES):
            passing = [test for test, made in tries.items() if all(one.has_passed for one in made)]
            if passing:
                for test, made in _run_alone(passing, folder, options, environ).items():
                    tries[test].append(made)
        for failure in of_one_file:
            yield Look(failure=failure, tries=tuple(tries[failure.test]))


def _file(failure: Failure) -> str:
    return failure.test.partition("::")[0]


def _run_alone(
    tests: Sequence[str], folder: Path, options: Sequence[str], environ: Mapping[str, str]
) -> dict[str, Try]:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-rfEp", *options, *tests]
    started = datetime.now(UTC)
    try:
        ended = subprocess.run(
            command,
            cwd=folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_SECONDS,
            text=True,
            errors="replace",
            check=False,
        )
        output = ended.stdout
    except subprocess.TimeoutExpired as timeout:
        output = f"{timeout}\n"
    seconds = (datetime.now(UTC) - started).total_seconds()
    return {
        test: Try(has_passed=_has_passed(test, output), seconds=seconds, output=output)
        for test in tests
    }


def _has_passed(test: str, output: str) -> bool:
    """Read pytest's summary. A test that is skipped alone has not passed, nor has one that fails
    while it is torn down."""
    lines = output.splitlines()
    failed = (f"FAILED {test}", f"ERROR {test}")
    is_failed = any(line == one or line.startswith(f"{one} - ") for line in lines for one in failed)
    return f"PASSED {test}" in lines and not is_failed


def table_of(looks: Iterable[Look]) -> str:
    """Return a line for each test, and below it the first line of its failure in the run."""
    lines: list[str] = []
    for look in looks:
        word = "unsteady" if look.is_unsteady else "broken"
        alone = ", ".join(f"{one.seconds:.1f} s" for one in look.tries)
        lines += [
            f"{word:8}  {look.failure.test}",
            f"          in the run {look.failure.seconds:.1f} s, alone {alone}",
            f"          {look.failure.message}",
        ]
    return "\n".join(lines)


def append_unsteady(record: Path, looks: Iterable[Look]) -> None:
    """Write a line of JSON for each unsteady test to the end of `record`."""
    record.parent.mkdir(parents=True, exist_ok=True)
    with record.open("a", encoding="utf-8") as file:
        for look in looks:
            if look.is_unsteady:
                entry = {
                    "at": datetime.now(UTC).isoformat(timespec="seconds"),
                    "test": look.failure.test,
                    "seconds_in_run": round(look.failure.seconds, 3),
                    "seconds_alone": [round(one.seconds, 3) for one in look.tries],
                    "failure": look.failure.message,
                }
                file.write(json.dumps(entry) + "\n")
