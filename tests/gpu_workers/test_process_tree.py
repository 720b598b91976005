import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.polling import eventually_sync

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal is Linux's")


@pytest.fixture
def tree() -> Iterator[tuple["subprocess.Popen[str]", list[int]]]:
    """A parent, and the pids of its child and grandchild."""
    parent = subprocess.Popen(
        [sys.executable, "-m", "tests.support.processes.tree_parent"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert parent.stdout is not None
    pids = [int(parent.stdout.readline()) for _ in range(2)]
    yield parent, pids
    for pid in [*pids, parent.pid]:
        if is_running(pid):
            os.kill(pid, signal.SIGKILL)
    parent.wait()
    parent.stdout.close()


def is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def test_a_killed_parent_leaves_neither_child_nor_grandchild(
    tree: tuple["subprocess.Popen[str]", list[int]],
) -> None:
    parent, pids = tree
    assert all(is_running(pid) for pid in pids)
    parent.kill()
    parent.wait()
    eventually_sync(lambda: not any(is_running(pid) for pid in pids))


def test_a_killed_child_leaves_no_grandchild(
    tree: tuple["subprocess.Popen[str]", list[int]],
) -> None:
    _, (child, grandchild) = tree
    os.kill(child, signal.SIGKILL)
    eventually_sync(lambda: not is_running(grandchild))


def test_children_are_in_process_groups_of_their_own(
    tree: tuple["subprocess.Popen[str]", list[int]],
) -> None:
    parent, pids = tree
    eventually_sync(lambda: [os.getpgid(pid) for pid in pids] == pids)
    assert os.getpgid(parent.pid) == parent.pid
