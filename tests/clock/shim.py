"""Compiles the shim, and runs a program under a clock that it shifts."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("shift.c")
SHIFT_VARIABLE = "CLOCK_SHIFT_SECONDS"
COMPILERS = ("cc", "gcc", "clang")


class NoShim(RuntimeError):
    """The shim cannot be made here; the message is a sentence that says what is missing."""


def compile_shim(folder: Path) -> Path:
    """Return the path of the library, made in `folder`.

    Raises `NoShim` where there is no compiler, or where it refuses.
    """
    if sys.platform != "linux":
        raise NoShim("The clock is shifted by LD_PRELOAD, which only Linux has.")
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        raise NoShim(
            "No C compiler was found (cc, gcc or clang), and the clock is shifted by a library "
            "that is compiled first: install one, on Debian by `apt-get install gcc libc6-dev`."
        )
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "shift.so"
    command = [compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise NoShim(f"{compiler} could not compile {SOURCE.name}: {ended.stderr.strip()}")
    return library


def shifted(library: Path, seconds: int) -> dict[str, str]:
    """Return the environment of a process whose clock, and its children's, is `seconds` on."""
    return {**os.environ, "LD_PRELOAD": str(library), SHIFT_VARIABLE: str(seconds)}
