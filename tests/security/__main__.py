"""`make security`: run the tests of the table and print it; further arguments are pytest's.

`--only PART` takes the promises whose text contains it.

Ends with 1 where a promise was broken, has no test, or nothing of it could be tried here.
"""

import argparse
import os
import sys

import pytest

from tests.security.outcomes import Outcomes, result_of, table_of
from tests.security.table import ROWS
from tests.support.places import ROOT


def main(arguments: list[str]) -> int:
    os.chdir(ROOT)
    parser = argparse.ArgumentParser(prog="python -m tests.security", allow_abbrev=False)
    parser.add_argument("--only", default="", help="promises whose text contains this")
    chosen, of_pytest = parser.parse_known_args(arguments)
    rows = [row for row in ROWS if chosen.only in row.promise]
    if not rows:
        parser.error(f"no promise contains {chosen.only!r}")
    tests = sorted({test for row in rows for test in row.tests})
    outcomes = Outcomes()
    options = ["-q", "-n", "2", "--dist", "loadgroup", *of_pytest]
    status = pytest.main([*options, *tests], plugins=[outcomes])
    results = [result_of(row, outcomes.ended, outcomes.seconds) for row in rows]
    sys.stdout.write(f"\n{table_of(results)}\n")
    broken = [result for result in results if not result.holds]
    sys.stdout.write(f"\n{len(results) - len(broken)} of {len(results)} promises hold.\n")
    return int(bool(broken) or status != pytest.ExitCode.OK)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
