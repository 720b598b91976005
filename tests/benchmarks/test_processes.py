"""What processes cost is read from /proc, by the program that started them."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.benchmarks.processes import (
    children,
    cpu_seconds,
    group_by_program,
    memory_bytes,
    run_on,
)

# Starts a child, takes CPU time and memory, says so, waits for its input to end.
PROGRAM = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
held = b"x" * 20_000_000
while time.process_time() < 0.3:
    pass
print("ready", flush=True)
sys.stdin.read()
child.stdin.close()
child.wait()
"""


@pytest.fixture
def program() -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
        process.communicate()


def test_a_process_is_counted_for_the_nearest_program_above_it(
    program: "subprocess.Popen[bytes]",
) -> None:
    (child,) = children(program.pid)
    assert group_by_program({"server": [program.pid]}) == {"server": [program.pid, child]}
    roots = {"server": [program.pid], "engine": [child]}
    assert group_by_program(roots) == {"server": [program.pid], "engine": [child]}


def test_cpu_time_and_memory_are_those_that_were_taken(
    program: "subprocess.Popen[bytes]",
) -> None:
    assert 0.25 < cpu_seconds([program.pid]) < 60
    assert memory_bytes([program.pid]) > 20_000_000


def test_cpu_time_of_a_child_that_has_ended_is_not_lost() -> None:
    burning = "import time\nwhile time.process_time() < 0.3: pass"
    before = cpu_seconds([os.getpid()])
    subprocess.run([sys.executable, "-c", burning], check=True)
    assert cpu_seconds([os.getpid()]) - before > 0.25


def test_a_process_that_has_ended_costs_nothing() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert group_by_program({"server": [ended.pid]}) == {"server": []}
    assert cpu_seconds([ended.pid]) == memory_bytes([ended.pid]) == 0


def test_all_threads_of_a_process_run_where_they_may(program: "subprocess.Popen[bytes]") -> None:
    core = min(os.sched_getaffinity(0))
    run_on([program.pid], {core})
    assert os.sched_getaffinity(program.pid) == {core}
