"""What a folder is said to have it has: obstore leaves it to the kernel when a file is written."""

import os
from pathlib import Path


def write_through(folder: Path, path: str) -> None:
    """Write a file of the folder to its disk, and the names that lead to it. Raises `OSError`."""
    file = folder / path
    _sync(file)
    for parent in file.parents:
        _sync(parent)
        if parent == folder:
            break


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
