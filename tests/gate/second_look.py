"""Run what failed again, each test alone in a process of its own, twice."""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
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
    """One more run of a test, alone. `seconds` include those of its servers."""

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
    for failure in failures:
        tries: list[Try] = []
        while len(tries) < TIMES and all(one.has_passed for one in tries):
            tries.append(_run_alone(failure.test, folder, options, environ))
        yield Look(failure=failure, tries=tuple(tries))


def _run_alone(test: str, folder: Path, options: Sequence[str], environ: Mapping[str, str]) -> Try:
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", *options, test]
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
        output, status = ended.stdout, ended.returncode
    except subprocess.TimeoutExpired as timeout:
        output, status = f"{timeout}\n", 1
    # A test that is skipped alone has not passed.
    has_passed = status == 0 and re.search(r"^1 passed", output, re.MULTILINE) is not None
    seconds = (datetime.now(UTC) - started).total_seconds()
    return Try(has_passed=has_passed, seconds=seconds, output=output)


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
