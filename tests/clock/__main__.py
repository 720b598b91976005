"""`make test-clock`: run the rooms that know dates under clocks that show other days.

Ends with 0 where every test has passed under every shift.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tests.clock.shifts import SHIFTS
from tests.clock.shim import NoShim, compile_shim, shifted
from tests.support.places import ROOT

# What makes things at one moment and judges them at another.
ROOMS = (
    "tests/tenants",
    "tests/inference/admission",
    "tests/inference/management_api",
    "tests/inference/operations",
    "tests/inference/refusals",
    "tests/inference/usage",
    "tests/control_plane/accounts",
    "tests/control_plane/dashboard",
    "tests/control_plane/live",
    "tests/control_plane/operator_site",
)
OPTIONS = ("-q", "-n", "2", "--dist", "loadgroup", "-m", "not rare and not engine")
GUARD = ("-p", "tests.clock.guard")


@dataclass(frozen=True, kw_only=True)
class Result:
    shift: str
    begins: datetime
    status: int
    summary: str
    failed: tuple[str, ...]
    minutes: float


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clock", description=__doc__)
    parser.add_argument("paths", nargs="*", default=ROOMS, help="instead of the rooms with dates")
    parser.add_argument("--shift", action="append", choices=SHIFTS, help="all unless named")
    asked = parser.parse_args(arguments)
    try:
        compiled = compile_shim(ROOT / "var" / "clock")
    except NoShim as problem:
        sys.stderr.write(f"{problem}\n")
        return 2
    with tempfile.TemporaryDirectory(prefix="penstock-clock-") as name:
        # PostgreSQL, which is another user where we are root, must be able to read it.
        folder = Path(name)
        folder.chmod(0o755)
        library = Path(shutil.copy(compiled, folder))
        library.chmod(0o755)
        results = [run(shift, asked.paths, library) for shift in asked.shift or SHIFTS]
    sys.stdout.write(f"\n{table_of(results)}\n")
    return int(any(result.status for result in results))


def run(shift: str, paths: list[str], library: Path) -> Result:
    """Run the tests in `paths` under a clock that begins at the moment of `shift`."""
    now = datetime.now(UTC)
    begins = SHIFTS[shift](now)
    sys.stdout.write(f"\n{shift}: begins at {begins:%d %B %Y %H:%M} UTC\n")
    sys.stdout.flush()
    command = [sys.executable, "-m", "pytest", *OPTIONS, *GUARD, *paths]
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=shifted(library, int((begins - now).total_seconds())),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        sys.stdout.write(line)
        sys.stdout.flush()
        lines.append(line)
    status = process.wait()
    return Result(
        shift=shift,
        begins=begins,
        status=status,
        summary=lines[-1].strip(" =\n") if lines else "",
        failed=failed_tests(lines),
        minutes=(time.monotonic() - started) / 60,
    )


def failed_tests(lines: list[str]) -> tuple[str, ...]:
    found = (re.match(r"(?:FAILED|ERROR) (\S+?)(?:@| - |$)", line) for line in lines)
    return tuple(sorted({match[1] for match in found if match}))


def table_of(results: list[Result]) -> str:
    lines = [f"{'shift':9} {'begins (UTC)':17} {'minutes':>7}  tests"]
    for result in results:
        minutes = f"{result.minutes:.1f}"
        lines.append(
            f"{result.shift:9} {result.begins:%d %b %Y %H:%M} {minutes:>7}  {result.summary}"
        )
        lines += [f"{'':9} failed: {test}" for test in result.failed]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
