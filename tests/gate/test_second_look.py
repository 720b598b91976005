"""Planted tests that are steady, unsteady or broken, and what the gate makes of the run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gate.second_look import MOST_UNSTEADY
from tests.support.places import ROOT

# As the suite's own, without its servers.
SETTINGS = """[pytest]
addopts = -ra -p tests.gate.reach -p tests.support.sharing_out --no-loadscope-reorder
  -p no:django -p no:schemathesis -p no:hypothesispytest -p no:anyio -p no:platformdirs -p no:valkey
"""
STEADY = "def test_steady(): pass\n"
BROKEN = "def test_broken(): assert 1 == 2, 'broken by hand'\n"
# Under load means here: beside others.
UNSTEADY = """
import os, pytest
@pytest.mark.parametrize("one", ["{}@x"])
def test_unsteady(one): assert "PYTEST_XDIST_WORKER" not in os.environ, "beside others"
"""
SKIPPED_ALONE = """
import os, pytest
def test_skipped():
    if "PYTEST_XDIST_WORKER" not in os.environ: pytest.skip("alone")
    raise AssertionError("beside others")
"""
DIES = "import os\ndef test_dies(): os._exit(3)\n"
FAILS_TO_TEAR_DOWN = """
import os, pytest
@pytest.fixture
def left_behind():
    yield
    assert "PYTEST_XDIST_WORKER" not in os.environ, "left something behind"
def test_leaves(left_behind): pass
"""
SHARES_WHAT_IS_COSTLY = """
import os, pathlib, pytest
BESIDE_OTHERS = "PYTEST_XDIST_WORKER" in os.environ
@pytest.fixture(scope="module")
def costly():
    if not BESIDE_OTHERS:
        with pathlib.Path(__file__).with_name("made").open("a") as made:
            made.write("alone ")
@pytest.mark.parametrize("one", range(3))
def test_one(costly, one): assert not BESIDE_OTHERS and one != 2
"""
ASKS_A_STRANGER = """
import socket
def test_asks():
    try: socket.create_connection(("192.0.2.7", 443), timeout=1)
    except OSError: pass
"""


class Gate:
    """Runs the gate over planted files, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._record = folder / "var" / "unsteady.jsonl"

    def run(self, **files: str) -> tuple[int, str]:
        """Return the exit status and what was printed; a name becomes `test_NAME.py`."""
        (self.folder / "pytest.ini").write_text(SETTINGS)
        for name, text in files.items():
            (self.folder / f"test_{name}.py").write_text(text)
        command = [sys.executable, "-m", "tests.gate", "--record", self._record, self.folder]
        # Started beside others itself, it starts none of them.
        environ = {key: value for key, value in os.environ.items() if "PYTEST" not in key}
        ended = subprocess.run(
            list(map(str, command)),
            cwd=ROOT,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in ended.stderr, ended.stderr
        return ended.returncode, ended.stdout

    def recorded(self) -> list[dict[str, object]]:
        if not self._record.exists():
            return []
        return [json.loads(line) for line in self._record.read_text().splitlines()]


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


def test_a_run_without_a_failure_is_green_and_records_nothing(gate: Gate) -> None:
    status, printed = gate.run(steady=STEADY)
    assert status == 0
    assert "second look" not in printed
    assert gate.recorded() == []


def test_an_unsteady_test_leaves_the_run_green_and_is_in_the_table(gate: Gate) -> None:
    status, printed = gate.run(steady=STEADY, unsteady=UNSTEADY.format("one"))
    assert status == 0
    table = printed.split("A second look", 1)[1]
    assert "unsteady  test_unsteady.py::test_unsteady[one@x]\n" in table
    assert "beside others" in table
    (recorded,) = gate.recorded()
    assert recorded["test"] == "test_unsteady.py::test_unsteady[one@x]"
    assert "beside others" in str(recorded["failure"])
    assert len(recorded["seconds_alone"]) == 2  # type: ignore[arg-type]


def test_what_fails_alone_too_makes_the_run_red(gate: Gate) -> None:
    status, printed = gate.run(broken=BROKEN, unsteady=UNSTEADY.format("one"))
    assert status == 1
    table = printed.split("A second look", 1)[1]
    assert "broken    test_broken.py::test_broken\n" in table
    assert "broken by hand" in table
    assert [entry["test"] for entry in gate.recorded()] == [
        "test_unsteady.py::test_unsteady[one@x]"
    ]


def test_more_than_five_unsteady_tests_make_the_run_red(gate: Gate) -> None:
    names = [f"unsteady_{number}" for number in range(MOST_UNSTEADY + 1)]
    status, printed = gate.run(**{name: UNSTEADY.format(name) for name in names})
    assert status == 1
    assert printed.count("unsteady  test_unsteady_") == MOST_UNSTEADY + 1
    assert "Red: 6 unsteady tests in one run" in printed


def test_what_failed_of_one_file_shares_what_is_costly_and_is_judged_one_by_one(
    gate: Gate,
) -> None:
    status, printed = gate.run(shared=SHARES_WHAT_IS_COSTLY)
    assert status == 1
    table = printed.split("A second look", 1)[1]
    assert "broken    test_shared.py::test_one[2]\n" in table
    for number in (0, 1):
        assert f"unsteady  test_shared.py::test_one[{number}]\n" in table
    assert "Red: 1 of them fail alone too." in printed
    made = (gate.folder / "made").read_text().split()
    assert made == ["alone", "alone"], "once for each look"


def test_what_is_skipped_alone_has_not_passed(gate: Gate) -> None:
    status, printed = gate.run(skipped=SKIPPED_ALONE)
    assert status == 1
    assert "broken    test_skipped.py::test_skipped" in printed


def test_a_failure_while_tearing_down_is_looked_at_too(gate: Gate) -> None:
    status, printed = gate.run(leaves=FAILS_TO_TEAR_DOWN)
    assert status == 0
    assert "unsteady  test_leaves.py::test_leaves" in printed


def test_a_process_that_dies_gets_no_second_look(gate: Gate) -> None:
    status, printed = gate.run(dies=DIES)
    assert status == 1
    assert "A second look" not in printed
    assert "Red: The process that ran it died in test_dies.py::test_dies" in printed


def test_what_cannot_be_collected_makes_the_run_red_at_once(gate: Gate) -> None:
    status, printed = gate.run(steady=STEADY, uncollected="import no_such_module\n")
    assert status == 1
    assert "A second look" not in printed


def test_a_test_that_needs_the_network_fails_and_says_so(gate: Gate) -> None:
    status, printed = gate.run(asks=ASKS_A_STRANGER)
    assert status == 1
    assert "A test needs the network: it asks 192.0.2.7, port 443." in printed
