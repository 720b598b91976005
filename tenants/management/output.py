"""Where a command writes what it exports: standard output, or a new file for its owner's eyes."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError


@contextmanager
def opened_output(path: Path | None, stdout: Any) -> Iterator[Callable[[str], object]]:
    if path is None:
        yield lambda text: stdout.write(text, ending="")
        return
    try:
        # Exclusive and private from its first byte on.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise CommandError(f"{path} cannot be written: {error.strerror}.") from error
    with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
        yield file.write
