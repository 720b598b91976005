"""Who started whom. Of the standard library alone: the engine's environment runs this too."""

from pathlib import Path


def children_of(pid: int) -> list[int]:
    """Process ids of the direct children of all threads of a process."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]
