"""The two environments: what each is made from, and whether it is made. Standard library only."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from local_stack.installation.install_errors import InstallError, InstallProblem

GIGABYTE = 10**9


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A folder, the lock it is made from, and what making it takes."""

    folder: str
    lock: str
    pythons: tuple[tuple[int, int], ...]
    needed_bytes: int
    source_roots: tuple[str, ...]
    # Programs of ours, by the module that each is.
    programs: Mapping[str, str] = field(default_factory=dict)
    # Whether its lock holds the CPU build of torch, which public indexes do not carry.
    has_cpu_torch: bool = False
    # Shared libraries that its packages expect of the system.
    libraries: tuple[str, ...] = ()

    def path(self, root: Path) -> Path:
        """Return the environment's folder in the checkout at `root`."""
        return root / self.folder

    def python(self, root: Path) -> Path:
        """Return the environment's Python."""
        return self.path(root) / "bin" / "python"

    def is_made(self, root: Path) -> bool:
        """Return whether the environment bears the stamp of its lock."""
        try:
            return self.stamp_path(root).read_text() == self.stamp(root)
        except OSError:
            return False

    def was_made(self, root: Path) -> bool:
        """Return whether it was complete once at this place, if from another lock."""
        try:
            return self.stamp_path(root).read_text().endswith(f" {self.path(root)}\n")
        except OSError:
            return False

    def stamp(self, root: Path) -> str:
        """Return the hash of lock and programs, and the folder's place, since an environment cannot
        be moved."""
        lock = (root / self.lock).read_bytes() + repr(sorted(self.programs.items())).encode()
        return f"{hashlib.sha256(lock).hexdigest()} {self.path(root)}\n"

    def stamp_path(self, root: Path) -> Path:
        """Return the file that is written last, when all packages are installed."""
        return self.path(root) / "penstock-stamp"


CONTROL_PLANE = Environment(
    folder=".venv",
    lock="requirements/control-plane.txt",
    pythons=((3, 11), (3, 12), (3, 13)),
    needed_bytes=GIGABYTE,
    source_roots=(".", "platform"),
    programs={"penstock": "command_line"},
)
ENGINE_CPU = Environment(
    folder=".venv-engine",
    lock="requirements/engine-cpu.txt",
    pythons=((3, 11),),  # the lock holds the hash of torch's CPU build for 3.11
    needed_bytes=4 * GIGABYTE,
    source_roots=(".",),
    has_cpu_torch=True,
    libraries=("libnuma.so.1",),
)
ENGINE_CUDA = Environment(
    folder=".venv-engine",
    lock="requirements/engine-cuda.txt",
    pythons=((3, 11),),
    needed_bytes=20 * GIGABYTE,
    source_roots=(".",),
)


def engine_environment(environ: Mapping[str, str] = os.environ) -> Environment:
    """Return vLLM's CUDA build if there is a GPU, else its CPU build.

    PENSTOCK_ENGINE overrides this. Raises `InstallError` if it is neither `cpu` nor `cuda`.
    """
    wanted = environ.get("PENSTOCK_ENGINE", "")
    if wanted not in ("", "cpu", "cuda"):
        raise InstallError(
            InstallProblem.UNKNOWN_ENGINE,
            f"PENSTOCK_ENGINE must be cpu or cuda, got: {wanted!r}.",
        )
    has_cuda = wanted == "cuda" or (wanted == "" and Path("/dev/nvidia0").exists())
    return ENGINE_CUDA if has_cuda else ENGINE_CPU
