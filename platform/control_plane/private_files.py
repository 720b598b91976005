"""Files of secrets, as KEY=value lines that nobody else can read."""

import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from gpu_workers.config import read_env_file


def load_or_create_passwords(file: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the file's passwords by name, with a new one added to it for each name it lacks."""
    kept = read_env_file(file) if file.exists() else {}
    complete = kept | {name: secrets.token_urlsafe(24) for name in names if not kept.get(name)}
    if complete != kept:
        write_private(file, complete)
    return complete


def write_private(file: Path, values: Mapping[str, str]) -> None:
    """Write KEY=value lines to a file that only its owner can read."""
    write_private_text(file, "".join(f"{name}={value}\n" for name, value in values.items()))


def write_private_text(file: Path, text: str) -> None:
    """Replace a file as a whole; it has mode 0600 from its first moment."""
    half = file.with_name(f"{file.name}.writing")
    half.unlink(missing_ok=True)
    descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as lines:
        lines.write(text)
    half.replace(file)
