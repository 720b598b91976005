"""uv (docs.astral.sh/uv), which makes the environments; pip does no more than fetch it.

The control plane's lock pins it with its hashes. It lies in `var/uv-VERSION`. Standard library
only.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from local_stack.installation import lock_files, pip_settings
from local_stack.installation.environments import CONTROL_PLANE
from local_stack.installation.install_errors import InstallError, InstallProblem, explain
from local_stack.installation.machine import base_python


@dataclass(frozen=True, kw_only=True)
class Uv:
    """A uv and its environment variables, which may hold the passwords of indexes."""

    program: Path
    environ: Mapping[str, str] = field(repr=False)
    # For commands that look for packages.
    index_options: tuple[str, ...] = ()


def obtain(root: Path) -> Uv:
    """Return the uv of the lock, fetched by pip if it is not there yet.

    Raises `InstallError` if this Python has neither pip nor venv, or uv cannot be fetched.
    """
    pinned = lock_files.excerpt((root / CONTROL_PLANE.lock).read_text(), "uv")
    version = pinned.split()[0].partition("==")[2]
    folder = root / "var" / f"uv-{version}"
    if not (folder / "bin" / "uv").exists():
        _fetch(pinned, folder, root / "var" / "log" / "install.uv.log")
    settings = pip_settings.read(_pip(folder))
    told = {
        "UV_CACHE_DIR": str(_cache_folder(root)),
        "UV_PYTHON_DOWNLOADS": "never",
        "NO_COLOR": "1",
        **pip_settings.as_uv_variables(settings),
    }
    # Who has set uv's own variables means them.
    given = {name: text for name, text in os.environ.items() if text and name.startswith("UV_")}
    return Uv(
        program=folder / "bin" / "uv",
        environ=os.environ | told | given,
        index_options=pip_settings.as_uv_options(settings),
    )


def _fetch(pinned: str, folder: Path, log: Path) -> None:
    """Install uv, alone, into a folder of its own; a partial one never remains under its name."""
    half = folder.with_name(f"{folder.name}.fetching")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir(parents=True)
    if _has_pip(base_python()):
        where = ["--target", str(half)]
    else:
        _make_with_pip(half)
        where = []
    requirement = half / "uv.txt"
    requirement.write_text(pinned)
    install = [*_pip(half), "install", "--disable-pip-version-check", "--no-input", "--no-deps"]
    install += ["--require-hashes", "--only-binary", ":all:", *where, "-r", str(requirement)]
    with log.open("wb") as output:
        done = subprocess.run(
            install,
            # It goes into a folder of ours, whatever else pip was told of where to install.
            env=os.environ | {"PIP_REQUIRE_VIRTUALENV": "0", "PIP_USER": "0"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        raise explain(log.read_text(errors="replace"), log)
    shutil.rmtree(folder, ignore_errors=True)
    half.rename(folder)


def _pip(folder: Path) -> list[str]:
    """Return the command of a pip: this Python's, or the one that was made in uv's folder."""
    own = folder / "bin" / "python"
    return [str(own) if own.exists() else base_python(), "-m", "pip"]


def _has_pip(python: str) -> bool:
    return _run([python, "-m", "pip", "--version"])


def _make_with_pip(folder: Path) -> None:
    python = base_python()
    if not _run([python, "-m", "venv", str(folder)]):
        name = Path(python).name
        raise InstallError(
            InstallProblem.PIP_MISSING,
            f"{python} has neither pip nor venv, one of which is needed to fetch uv: install one "
            f"(Debian, Ubuntu: apt-get install {name}-venv) and run it again.",
        )


def _cache_folder(root: Path) -> Path:
    """Return uv's own cache where packages can be linked from it, else one in the checkout."""
    usual = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "uv"
    there = next(folder for folder in (usual, *usual.parents) if folder.exists())
    can_link = os.access(there, os.W_OK) and there.stat().st_dev == root.stat().st_dev
    return usual if can_link else root / "var" / "uv-cache"


def _run(command: Sequence[str]) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0
