"""What the machine must have before packages are installed. Standard library only."""

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

from local_stack.installation.environments import GIGABYTE, Environment
from local_stack.installation.install_errors import InstallError, InstallProblem


def check_disk(root: Path, needed_bytes: int) -> None:
    """Raise `InstallError` if the disk of the checkout has less than `needed_bytes` free."""
    free = shutil.disk_usage(root).free
    if free < needed_bytes:
        raise InstallError(
            InstallProblem.DISK_FULL,
            f"The disk of {root} has {free / GIGABYTE:.1f} GB free and the environments need "
            f"about {needed_bytes / GIGABYTE:.0f} GB: free some space and run it again.",
        )


def check_library(name: str) -> None:
    """Raise `InstallError` if the system has no such shared library."""
    try:
        ctypes.CDLL(name)
    except OSError as error:
        raise InstallError(
            InstallProblem.LIBRARY_MISSING,
            f"vLLM's CPU build needs {name}, which this machine lacks: install it "
            "(Debian, Ubuntu: apt-get install libnuma1; Fedora: dnf install numactl-libs) "
            "and run it again.",
        ) from error


def find_python(environment: Environment) -> str:
    """Return a Python that the environment's lock is for. Raises `InstallError` without one."""
    candidates = [base_python()]
    for version in environment.pythons:
        found = shutil.which("python{}.{}".format(*version))
        if found:
            candidates.append(found)
    for candidate in candidates:
        if python_version(candidate) in environment.pythons:
            return candidate
    wanted = " or ".join("{}.{}".format(*version) for version in environment.pythons)
    here = "{}.{}".format(*sys.version_info[:2])
    raise InstallError(
        InstallProblem.PYTHON_MISSING,
        f"{environment.folder} needs Python {wanted} and only {here} was found: install it "
        "(Debian, Ubuntu: apt-get install python3.11 python3.11-venv) and run it again.",
    )


def base_python() -> str:
    """Return this Python, or the one behind it if it is an environment's: those have no pip."""
    name = "python{}.{}".format(*sys.version_info[:2])
    behind = Path(sys.base_prefix) / "bin" / name
    is_environment = sys.prefix != sys.base_prefix
    return str(behind) if is_environment and behind.exists() else sys.executable


def python_version(python: str | Path) -> tuple[int, int]:
    """Return a Python's major and minor version; (0, 0) if it does not run."""
    if python == sys.executable:
        return sys.version_info[:2]
    question = "import sys; print(*sys.version_info[:2])"
    try:
        answer = subprocess.run(
            [python, "-c", question], capture_output=True, text=True, check=False
        )
    except OSError:
        return (0, 0)
    words = answer.stdout.split()
    return (int(words[0]), int(words[1])) if len(words) == 2 else (0, 0)
