"""What processes cost, from /proc: CPU seconds, memory, and the cores that they may run on.

Processes are grouped by the program that started them.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
KIB = 1024


def children(pid: int, proc: Path = PROC) -> list[int]:
    """Return the direct children of all threads of a process."""
    tasks = _listed(proc / str(pid) / "task")
    return [int(child) for task in tasks for child in _text(task / "children").split()]


def group_by_program(roots: Mapping[str, Iterable[int]], proc: Path = PROC) -> dict[str, list[int]]:
    """Return the processes of each program. `roots`: program -> its first processes. A process
    belongs to the nearest root above it."""
    program_of = {pid: name for name, pids in roots.items() for pid in pids}
    groups: dict[str, list[int]] = {name: [] for name in roots}
    for root, name in program_of.items():
        found = [root] if (proc / str(root)).is_dir() else []
        for each in found:
            found += [child for child in children(each, proc) if child not in program_of]
        groups[name] += found
    return groups


def cpu_seconds(pids: Iterable[int], proc: Path = PROC) -> float:
    """Return the CPU time, user and system, that processes have taken since their start, with that
    of the children that they have waited for."""
    ticks = 0
    for pid in pids:
        fields = _text(proc / str(pid) / "stat").rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))  # utime, stime, cutime, cstime: proc(5)
    return ticks / TICKS_PER_SECOND


def memory_bytes(pids: Iterable[int], proc: Path = PROC) -> int:
    """Return what processes have in memory, pages shared between processes counted in shares; 0 of
    those that we may not look into."""
    total = 0
    for pid in pids:
        for line in _text(proc / str(pid) / "smaps_rollup").splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * KIB
    return total


def run_on(pids: Iterable[int], cores: set[int], proc: Path = PROC) -> None:
    """Let all threads of these processes run on `cores` alone."""
    for pid in pids:
        for task in _listed(proc / str(pid) / "task"):
            try:
                os.sched_setaffinity(int(task.name), cores)
            except ProcessLookupError:
                continue  # it ended meanwhile


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _text(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
