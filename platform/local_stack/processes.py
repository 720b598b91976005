"""The processes of one stack, found in /proc: also those whose supervisor was killed.

A process is ours if its environment bears the stack's marker, or if it stands in one of the
stack's data folders: PostgreSQL and Redis overwrite their environment with their title, and they
always run in their folder. vLLM would too; SPT_NOENV tells its title setter not to.
"""

import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

MARKER = "PENSTOCK_STACK"
PROC = Path("/proc")


def marker_environ(stack_id: str) -> dict[str, str]:
    """Return the variables that mark each process of a stack."""
    return {MARKER: stack_id, "SPT_NOENV": "1"}


def belonging_to(stack_id: str, folders: Iterable[Path], proc: Path = PROC) -> list[int]:
    """Return the stack's process ids, without ourselves and our ancestors."""
    entry = f"{MARKER}={stack_id}".encode()
    places = [os.path.realpath(folder) for folder in folders]
    ours = _ancestors(proc)
    found = []
    for process in proc.iterdir():
        if not process.name.isdigit() or int(process.name) in ours:
            continue
        try:
            if _is_zombie(process):
                continue
            marked = entry in (process / "environ").read_bytes().split(b"\0")
            if marked or _stands_in(process, places):
                found.append(int(process.name))
        except (OSError, ValueError):
            continue  # it ended meanwhile, or is another user's
    return sorted(found)


def end_all(stack_id: str, folders: Iterable[Path], grace_seconds: float = 10.0) -> list[int]:
    """Send TERM, then KILL, until none is left; return the ids of those there were.

    Raises `RuntimeError` if one survives.
    """
    places = list(folders)
    left = first = belonging_to(stack_id, places)
    deadline = time.monotonic() + grace_seconds
    _signal(left, signal.SIGTERM)
    while left and time.monotonic() < deadline:
        time.sleep(0.1)
        left = belonging_to(stack_id, places)
    while left and time.monotonic() < deadline + grace_seconds:
        _signal(left, signal.SIGKILL)
        time.sleep(0.1)
        left = belonging_to(stack_id, places)
    if left:
        raise RuntimeError(f"Processes {left} survive SIGKILL: end them by hand.")
    return first


def _stands_in(process: Path, places: list[str]) -> bool:
    where = str((process / "cwd").readlink())
    return any(where == place or where.startswith(f"{place}/") for place in places)


def _is_zombie(process: Path) -> bool:
    return (process / "stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X")


def _ancestors(proc: Path) -> set[int]:
    """Return us and our ancestors: a `make shell` has the marker, and may run `make down`."""
    ours = set()
    pid = os.getpid()
    while pid > 1 and pid not in ours:
        ours.add(pid)
        try:
            stat = (proc / str(pid) / "stat").read_text()
        except OSError:
            break
        pid = int(stat.rpartition(")")[2].split()[1])
    return ours


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
