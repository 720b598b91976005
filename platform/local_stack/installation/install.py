"""Makes one environment with uv, which runs beside us. Standard library only."""

import fcntl
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

from local_stack.installation.environments import Environment
from local_stack.installation.install_errors import (
    InstallError,
    InstallProblem,
    explain,
    has_no_cpu_torch,
)
from local_stack.installation.machine import find_python, python_version
from local_stack.installation.progress import Progress
from local_stack.installation.uv import Uv

PAUSE_SECONDS = 0.1

# The one place where a package index is named. Public ones carry no `+cpu` build of torch, so that
# PyTorch's own is asked where it is not found without; PENSTOCK_TORCH_CPU_INDEX overrides it.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def torch_cpu_page() -> str:
    """Return the address of the page that lists the CPU builds of torch, and nothing else."""
    index = os.environ.get("PENSTOCK_TORCH_CPU_INDEX") or TORCH_CPU_INDEX
    return f"{index.rstrip('/')}/torch/"


class Install:
    """One environment in the making: `start` it, `poll` until it is done, `stop` in any case.

    Packages that are no longer in the lock are removed. An environment without a stamp may hold
    half a package, so it is made again; what was downloaded is in uv's cache.
    """

    def __init__(self, root: Path, environment: Environment, uv: Uv) -> None:
        self.environment = environment
        self._root = root
        self._uv = uv
        self._log = _log(root, environment)
        self._lock_descriptor: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._asked_torch_page = False
        self._is_done = False

    def start(self) -> None:
        """Start. Raises `InstallError` if another process is at work on the environment."""
        self._hold_lock()
        can_be_changed = self.environment.was_made(self._root) and self._is_usable()
        self.environment.stamp_path(self._root).unlink(missing_ok=True)
        if not can_be_changed:
            self._make_empty()
        self._sync()

    def poll(self) -> bool:
        """Return whether it is made. Raises `InstallError` if packages cannot be installed."""
        if self._is_done or self._process is None:
            return self._is_done
        status = self._process.poll()
        if status is None:
            return False
        if status == 0:
            self._finish()
            return True
        output = self._output()
        if not self._can_ask_torch_page(output):
            raise explain(output, self._log)
        self._asked_torch_page = True
        self._sync(["--find-links", torch_cpu_page()])
        return False

    def stop(self) -> None:
        """End what still runs; its downloads are kept."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None

    def describe(self) -> str:
        """Describe its progress in a few words."""
        phase = "done" if self._is_done else _phase(self._log)
        return f"{self.environment.folder}: {phase}"

    def _hold_lock(self) -> None:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._lock_descriptor = _try_lock(self._root, self.environment)
        if self._lock_descriptor is None:
            raise InstallError(
                InstallProblem.BEING_INSTALLED,
                f"Another `make` is installing packages into {self.environment.folder}: "
                "wait until it has ended and run it again.",
            )

    def _is_usable(self) -> bool:
        """Return whether its Python runs and is one of those it may have."""
        return python_version(self.environment.python(self._root)) in self.environment.pythons

    def _make_empty(self) -> None:
        folder = self.environment.path(self._root)
        if folder.exists() or folder.is_symlink():
            shutil.rmtree(folder)
        python = find_python(self.environment)
        self._run(["venv", "--no-project", "--python", python, str(folder)]).wait()
        if not self.environment.python(self._root).exists():
            raise explain(self._output(), self._log)

    def _sync(self, options: list[str] | None = None) -> None:
        python = str(self.environment.python(self._root))
        sync = ["pip", "sync", "--python", python, "--require-hashes", "--only-binary", ":all:"]
        sync += ["--allow-empty-requirements", *self._uv.index_options, *(options or [])]
        self._process = self._run([*sync, str(self._root / self.environment.lock)])

    def _run(self, arguments: list[str]) -> "subprocess.Popen[bytes]":
        with self._log.open("wb") as output:
            return subprocess.Popen(
                [str(self._uv.program), *arguments],
                env=dict(self._uv.environ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def _can_ask_torch_page(self, output: str) -> bool:
        is_missing = self.environment.has_cpu_torch and has_no_cpu_torch(output)
        return is_missing and not self._asked_torch_page

    def _finish(self) -> None:
        folder = self.environment.path(self._root)
        site_packages = next(folder.glob("lib/python*/site-packages"))
        roots = [str((self._root / each).resolve()) for each in self.environment.source_roots]
        (site_packages / "penstock.pth").write_text("\n".join(roots) + "\n")
        for name, module in self.environment.programs.items():
            program = folder / "bin" / name
            program.write_text(f'#!/bin/sh\nexec "$(dirname "$0")/python" -m {module} "$@"\n')
            program.chmod(0o755)
        self.environment.stamp_path(self._root).write_text(self.environment.stamp(self._root))
        self._is_done = True

    def _output(self) -> str:
        return self._log.read_text(errors="replace")


def wait_until_made(root: Path, environment: Environment, progress: Progress) -> None:
    """Wait for an environment that another process makes. Raises `InstallError` if none does."""
    began = time.monotonic()
    while not environment.is_made(root):
        descriptor = _try_lock(root, environment)
        if descriptor is not None:
            os.close(descriptor)
            if environment.is_made(root):
                return
            raise InstallError(
                InstallProblem.NOT_MADE, f"{environment.folder} is not made: run `make up`."
            )
        elapsed = time.monotonic() - began
        phase = _phase(_log(root, environment))
        progress.show(f"Installing packages, {elapsed:.0f} s: {environment.folder}: {phase}")
        time.sleep(PAUSE_SECONDS)


def _log(root: Path, environment: Environment) -> Path:
    return root / "var" / "log" / f"install{environment.folder}.log"


def _try_lock(root: Path, environment: Environment) -> int | None:
    """Return the descriptor that holds the environment's lock, None if another process has it."""
    path = root / "var" / f"install{environment.folder}.lock"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _phase(log: Path) -> str:
    """Return what uv does at the moment, read from what it has written so far."""
    output = log.read_text(errors="replace")
    if re.search(r"(?m)^Prepared ", output):
        return "linking"
    begun = re.findall(r"(?m)^Downloading (\S+)", output)
    ended = set(re.findall(r"(?m)^ Downloaded (\S+)", output))
    going_on = [name for name in begun if name not in ended]
    if going_on:
        others = f" and {len(going_on) - 2} more" if len(going_on) > 2 else ""
        return f"downloading {', '.join(going_on[:2])}{others}"
    return "unpacking" if re.search(r"(?m)^Resolved ", output) else "looking packages up"
