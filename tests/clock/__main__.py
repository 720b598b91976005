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

from tests.clock.shifts import SHIFTS, Shift
from tests.clock.shim import NoShim, compile_shim, shifted
from tests.support.places import ROOT

# What makes things at one moment and judges them at another.
ROOMS = (
    "tests/tenants",
    "tests/inference/admission",
    "tests/control_plane/management_api",
    "tests/inference/operations",
    "tests/inference/refusals",
    "tests/inference/usage",
    "tests/control_plane/accounts",
    "tests/control_plane/dashboard",
    "tests/control_plane/live",
    "tests/control_plane/operator_site",
)
OPTIONS = ("-q", "-n", "2", "--dist", "loadgroup", "-m", "not rare and not engine")
AT = "at"


@dataclass(frozen=True, kw_only=True)
class Result:
    shift: str
    begins: datetime
    summary: str
    status: int = 1
    failed: tuple[str, ...] = ()
    minutes: float = 0.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clock", description=__doc__)
    parser.add_argument("paths", nargs="*", default=ROOMS, help="instead of the rooms with dates")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--shift", action="append", choices=SHIFTS, help="all unless named")
    when.add_argument("--at", type=_moment, help="a moment (UTC) instead, like 2027-03-01T00:10")
    asked = parser.parse_args(arguments)
    shifts = {AT: lambda _: asked.at} if asked.at else SHIFTS
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
        results = [run(name, shifts[name], asked.paths, library) for name in asked.shift or shifts]
    sys.stdout.write(f"\n{table_of(results)}\n")
    return int(any(result.status for result in results))


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def run(name: str, shift: Shift, paths: list[str], library: Path) -> Result:
    """Run the tests in `paths` under a clock that begins at the moment of `shift`."""
    now = datetime.now(UTC)
    begins = shift(now)
    sys.stdout.write(f"\n{name}: begins at {begins:%d %B %Y %H:%M} UTC\n")
    sys.stdout.flush()
    environ = shifted(library, int((begins - now).total_seconds()))
    started = time.monotonic()
    # It says itself what is wrong.
    if subprocess.run(
        [sys.executable, "-m", "tests.clock.guard"], cwd=ROOT, env=environ
    ).returncode:
        return Result(shift=name, begins=begins, summary="the clock is not shifted everywhere")
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *OPTIONS, *paths],
        cwd=ROOT,
        env=environ,
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
        shift=name,
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
