"""The packages that a lock file pins."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

# The files by what is installed from them.
LOCKS: Final = ("web", "control-plane", "engine-cpu", "engine-cuda")
_PIN = re.compile(r"(?m)^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)")


@dataclass(frozen=True, kw_only=True)
class Pin:
    """A package at its version. `name` is normalised as indexes do it."""

    name: str
    version: str


def normalised(name: str) -> str:
    """Return a package's name as PEP 503 writes it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def lock_file(root: Path, lock: str) -> Path:
    return root / "requirements" / f"{lock}.txt"


def pins(root: Path, lock: str) -> list[Pin]:
    """Return what a lock pins, in its order."""
    text = lock_file(root, lock).read_text(encoding="utf-8")
    return [Pin(name=normalised(name), version=version) for name, version in _PIN.findall(text)]
