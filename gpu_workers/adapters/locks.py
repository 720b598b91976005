"""File locks that end with their process, however that ends."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

LOCK_SECONDS: Final = 5.0
_LOOK_AGAIN_SECONDS: Final = 0.02


def try_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock until it is closed; None if another has it, or there
    can be none."""
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        return None
    return lock


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold a lock. Raises `TimeoutError`, an `OSError`, if it is not to be had in time."""
    deadline = time.monotonic() + LOCK_SECONDS
    while (lock := try_lock(path)) is None:
        if time.monotonic() >= deadline:
            raise TimeoutError(f"its lock is not to be had in {LOCK_SECONDS:g} s")
        time.sleep(_LOOK_AGAIN_SECONDS)
    try:
        yield
    finally:
        os.close(lock)
