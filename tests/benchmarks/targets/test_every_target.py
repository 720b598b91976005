"""Every target that measures or proves something still starts, runs and ends."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.benchmarks.targets.smallest import STARTED, Smallest
from tests.support.chromium.launching import chromium_path
from tests.support.places import ROOT

pytestmark = [pytest.mark.engine, pytest.mark.rare, pytest.mark.stack]

# Quiet, the dearest takes 135 s. Beside a load of twenty a stack alone took 350 s to its model; a
# second look allows a quarter of an hour.
MOST_SECONDS = 840
LAST_LINES = 40
# What a run of the tests, or the make that started it, has in its environment for itself.
OF_A_RUN = re.compile(r"PENSTOCK_|PYTEST_|DJANGO_SETTINGS_MODULE$|MAKE|MFLAGS$|FUZZ_|CREDIT_")


@pytest.mark.parametrize(
    ("target", "smallest"),
    [
        pytest.param(
            target, smallest, id=target, marks=[pytest.mark.dear] if smallest.is_dear else []
        )
        for target, smallest in STARTED.items()
    ],
)
def test_it_runs_in_its_smallest_form(target: str, smallest: Smallest, tmp_path: Path) -> None:
    if smallest.needs_chromium and chromium_path() is None:
        pytest.skip("This machine has no Chromium; .ci/run installs it: apt-get install chromium")
    before = written_in(ROOT / "docs")
    status, output = run(smallest.command(target, str(tmp_path)), tmp_path / "output")
    last = "\n".join(output.splitlines()[-LAST_LINES:])
    assert status == 0, f"`make {target}` ended with {status}; its last lines:\n{last}"
    assert smallest.prints in output, (
        f"`make {target}` did not print {smallest.prints!r}; its last lines:\n{last}"
    )
    assert written_in(ROOT / "docs") == before, "figures of so little are no figures"


def written_in(folder: Path) -> dict[Path, int]:
    """Return when each file in it was written last."""
    return {file: file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


def run(command: list[str], log: Path) -> tuple[int | str, str]:
    """Run a command of its own process group to its end; return its exit status, or that it took
    too long, and all that it printed."""
    environ = {name: value for name, value in os.environ.items() if not OF_A_RUN.match(name)}
    status: int | str
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            status = f"no end after {MOST_SECONDS} s"
        finally:
            # Also where the test itself is broken off, by whatever.
            _end(process)
    return status, log.read_text(encoding="utf-8", errors="replace")


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.mark.parametrize("command", ["echo begun; exit 3", "echo begun; kill -9 $$"])
def test_a_program_that_fails_is_reported_with_its_output(command: str, tmp_path: Path) -> None:
    status, output = run(["sh", "-c", command], tmp_path / "output")
    assert (status, output) in [(3, "begun\n"), (-9, "begun\n")]
