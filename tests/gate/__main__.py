"""`make test`, `make test-all`: run the suite, give what failed a second look, and decide.

Ends with 0 where every test has passed, in the run or twice alone, and at most five needed that.
"""

import argparse
import os
import sys
from operator import itemgetter
from pathlib import Path

import pytest

from tests.gate.recorder import Recorder
from tests.gate.second_look import (
    MOST_LOOKED_AT,
    MOST_UNSTEADY,
    append_unsteady,
    look_again,
    table_of,
)
from tests.support.places import ROOT

SHOWN = 20  # of the slowest tests, and of the slowest files
IN_PARALLEL = ("-n", "2", "--dist", "loadgroup", "--durations", str(SHOWN))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gate", description=__doc__)
    parser.add_argument("paths", nargs="*", help="what to run; the whole suite unless named")
    parser.add_argument("-m", dest="marks", default="", help="as pytest's: which tests")
    parser.add_argument("--hypothesis-profile", help="thorough: many examples of each property")
    parser.add_argument("--record", type=Path, default=ROOT / "var" / "unsteady.jsonl")
    asked = parser.parse_args(arguments)
    environ = dict(os.environ)  # pytest's plugins change ours
    profile = ["--hypothesis-profile", asked.hypothesis_profile] if asked.hypothesis_profile else []
    recorder = Recorder()
    status = pytest.main(
        [*IN_PARALLEL, "-m", asked.marks, *profile, *asked.paths], plugins=[recorder]
    )
    sys.stdout.write(_slowest_files(recorder))
    failures = list(recorder.failures.values())
    if status == pytest.ExitCode.OK:
        return 0
    if status != pytest.ExitCode.TESTS_FAILED or recorder.uncollected or not failures:
        return _red(f"pytest ended with {int(status)} before every test had run.")
    crashed = [failure.test for failure in failures if failure.has_crashed]
    if crashed:
        return _red(f"The process that ran it died in {', '.join(crashed)}.")
    if len(failures) > MOST_LOOKED_AT:
        return _red(f"{len(failures)} tests failed, too many for a second look.")

    sys.stdout.write(f"\nA second look, alone and twice, at what failed ({len(failures)}):\n")
    looks = []
    shown = ""
    for look in look_again(failures, recorder.folder, profile, environ):
        looks.append(look)
        # Of one process for all that failed in it.
        if not look.is_unsteady and look.tries[-1].output != shown:
            shown = look.tries[-1].output
            sys.stdout.write(shown)
        sys.stdout.flush()
    append_unsteady(asked.record, looks)
    sys.stdout.write(f"\n{table_of(looks)}\n\n")
    broken = [look for look in looks if not look.is_unsteady]
    if broken:
        return _red(f"{len(broken)} of them fail alone too.")
    if len(looks) > MOST_UNSTEADY:
        return _red(f"{len(looks)} unsteady tests in one run; {MOST_UNSTEADY} at most may be.")
    sys.stdout.write(f"Green: each passes alone, twice. {asked.record} keeps them.\n")
    return 0


def _slowest_files(recorder: Recorder) -> str:
    found = sorted(recorder.seconds_of_files.items(), key=itemgetter(1), reverse=True)
    lines = [f"{seconds:7.1f} s  {file}" for file, seconds in found[:SHOWN]]
    return "\n".join(["", "The files that took longest, with their fixtures:", *lines, ""])


def _red(reason: str) -> int:
    sys.stdout.write(f"\nRed: {reason}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
