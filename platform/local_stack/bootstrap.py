"""Makes the two environments: `.venv` for the control plane, `.venv-engine` for the GPU worker.

Run by whichever Python is there, before anything is installed: so standard library only.
A stamp, written last, says which lock an environment was made from; without it, or with another,
the environment is completed. Whatever goes wrong is told in one sentence that says how to mend it.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - run by any Python
    sys.exit(
        "Penstock needs Python 3.11, 3.12 or 3.13 and this is {}.{}: install one "
        "(Debian, Ubuntu: apt-get install python3.11 python3.11-venv), or name it: "
        "make PYTHON=/path/to/python3.11 up.".format(*sys.version_info[:2])
    )

import argparse
import ctypes
import hashlib
import importlib.util
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from local_stack import lock_files
from local_stack.install_errors import explain_os_error, explain_pip

ROOT = Path(__file__).resolve().parents[2]
GIGABYTE = 10**9

# The one place where a package index is named. Public indexes carry no `+cpu` build of torch, so
# PyTorch's own is asked for it where pip finds none without; PENSTOCK_TORCH_CPU_INDEX overrides it.
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


class BootstrapError(Exception):
    """What stops us; the message is one sentence that says what and how to mend it."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A folder, the lock it is made from, and what making it takes."""

    folder: str
    lock: str
    pythons: tuple[tuple[int, int], ...]
    needed_bytes: int
    source_roots: tuple[str, ...]
    # Installed first and alone, from TORCH_CPU_INDEX where pip does not find it elsewhere.
    first: str | None = None
    # Shared libraries that its packages expect of the system.
    libraries: tuple[str, ...] = ()
    # Imported once at the end, which compiles them: every start afterwards takes half the time.
    # (Compiling all that is installed would take a minute longer than that.)
    warm_up: tuple[str, ...] = ()


CONTROL_PLANE = Environment(
    folder=".venv",
    lock="requirements/control-plane.txt",
    pythons=((3, 11), (3, 12), (3, 13)),
    needed_bytes=GIGABYTE,
    source_roots=(".", "platform"),
)
VLLM_MODULES = ("vllm.v1.engine.async_llm", "vllm.entrypoints.openai.api_server")
ENGINE_CPU = Environment(
    folder=".venv-engine",
    lock="requirements/engine-cpu.txt",
    pythons=((3, 11),),  # the lock holds the hash of torch's CPU build for 3.11
    needed_bytes=4 * GIGABYTE,
    source_roots=(".",),
    first="torch",
    libraries=("libnuma.so.1",),
    warm_up=(*VLLM_MODULES, "vllm.v1.worker.cpu_worker"),
)
ENGINE_CUDA = Environment(
    folder=".venv-engine",
    lock="requirements/engine-cuda.txt",
    pythons=((3, 11),),
    needed_bytes=20 * GIGABYTE,
    source_roots=(".",),
    warm_up=(*VLLM_MODULES, "vllm.v1.worker.gpu_worker"),
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Make Penstock's environments.")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--control-plane-only", action="store_true")
    choice.add_argument("--engine-only", action="store_true")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args(arguments)
    environments = [] if options.engine_only else [CONTROL_PLANE]
    if not options.control_plane_only:
        environments.append(engine_environment(os.environ))
    try:
        make(options.root, environments)
    except BootstrapError as problem:
        return _complain(str(problem), 1)
    except KeyboardInterrupt:
        return _complain("Interrupted; the next `make up` goes on from here.", 130)
    return 0


def engine_environment(environ: Mapping[str, str]) -> Environment:
    """vLLM's CUDA build where there is a GPU, else its CPU build; PENSTOCK_ENGINE overrides."""
    wanted = environ.get("PENSTOCK_ENGINE", "")
    if wanted not in ("", "cpu", "cuda"):
        sys.exit(_complain(f"PENSTOCK_ENGINE must be cpu or cuda, got: {wanted!r}.", 1))
    has_cuda = wanted == "cuda" or (wanted == "" and Path("/dev/nvidia0").exists())
    return ENGINE_CUDA if has_cuda else ENGINE_CPU


def make(root: Path, environments: Sequence[Environment]) -> None:
    """Make what is not there yet, all at once, with progress on the terminal."""
    missing = [each for each in environments if not is_made(root, each)]
    if not missing:
        return
    log = root / "var" / "log" / "install.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        check_disk(root, sum(each.needed_bytes for each in missing))
        for library in {name for each in missing for name in each.libraries}:
            check_library(library)
        pythons = {each.folder: find_python(each) for each in missing}
        with log.open("a") as log_file:
            installs = [_Install(root, each, pythons[each.folder], log_file) for each in missing]
            _run_all(installs)
    except OSError as error:
        raise BootstrapError(explain_os_error(error, root)) from error


def is_made(root: Path, environment: Environment) -> bool:
    """Whether the stamp in the environment is that of its lock."""
    try:
        return _stamp_path(root, environment).read_text() == stamp(root, environment)
    except OSError:
        return False


def stamp(root: Path, environment: Environment) -> str:
    """The lock's hash and the folder's place, since an environment cannot be moved."""
    lock = (root / environment.lock).read_bytes()
    return f"{hashlib.sha256(lock).hexdigest()} {root / environment.folder}\n"


def check_disk(root: Path, needed_bytes: int) -> None:
    free = shutil.disk_usage(root).free
    if free < needed_bytes:
        raise BootstrapError(
            f"The disk of {root} has {free / GIGABYTE:.1f} GB free and the environments need "
            f"about {needed_bytes / GIGABYTE:.0f} GB: free some space and run it again."
        )


def check_library(name: str) -> None:
    try:
        ctypes.CDLL(name)
    except OSError as error:
        raise BootstrapError(
            f"vLLM's CPU build needs {name}, which this machine lacks: install it "
            "(Debian, Ubuntu: apt-get install libnuma1; Fedora: dnf install numactl-libs) "
            "and run it again."
        ) from error


def find_python(environment: Environment) -> str:
    """A Python that the environment's lock is for and that can make environments."""
    candidates = [sys.executable]
    for version in environment.pythons:
        found = shutil.which("python{}.{}".format(*version))
        if found:
            candidates.append(found)
    without_venv = None
    for candidate in candidates:
        version, has_venv = _ask_python(candidate)
        if version in environment.pythons and has_venv:
            return candidate
        if version in environment.pythons:
            without_venv = without_venv or version
    if without_venv is not None:
        name = "python{}.{}".format(*without_venv)
        raise BootstrapError(
            f"{name} on this machine cannot make environments, it lacks venv or ensurepip: "
            f"install them (Debian, Ubuntu: apt-get install {name}-venv) and run it again."
        )
    wanted = " or ".join("{}.{}".format(*version) for version in environment.pythons)
    here = "{}.{}".format(*sys.version_info[:2])
    raise BootstrapError(
        f"{environment.folder} needs Python {wanted} and only {here} was found: install it "
        "(Debian, Ubuntu: apt-get install python3.11 python3.11-venv) and run it again."
    )


def _ask_python(python: str) -> tuple[tuple[int, int], bool]:
    if python == sys.executable:
        has_venv = all(importlib.util.find_spec(name) for name in ("venv", "ensurepip"))
        return (sys.version_info[0], sys.version_info[1]), has_venv
    question = (
        "import sys, importlib.util as u; "
        "print(*sys.version_info[:2], int(all(map(u.find_spec, ('venv', 'ensurepip')))))"
    )
    answer = subprocess.run([python, "-c", question], capture_output=True, text=True, check=False)
    words = answer.stdout.split()
    if answer.returncode != 0 or len(words) != 3:
        return (0, 0), False
    return (int(words[0]), int(words[1])), words[2] == "1"


# Installing --------------------------------------------------------------------------------------


class _Install:
    """The making of one environment: a chain of commands that runs beside the others."""

    def __init__(self, root: Path, environment: Environment, python: str, log: TextIO) -> None:
        self.environment = environment
        self.folder = root / environment.folder
        self.total = len(lock_files.packages((root / environment.lock).read_text()))
        self._root = root
        self._log = log
        self._output = Path(tempfile.mkdtemp(prefix="penstock-install-")) / "output"
        self._process: subprocess.Popen[bytes] | None = None
        self._steps = self._plan(python)
        self._step = -1
        self._used_torch_index = False

    def advance(self) -> bool:
        """Start the next step once the last has ended; False when all are done."""
        if self._process is not None:
            status = self._process.poll()
            if status is None:
                return True
            self._note_output()
            # A failed warm-up does no harm: the worker itself will say what is wrong, if it is.
            if status != 0 and not self._is_warming_up():
                if not self._retry_with_torch_index():
                    raise BootstrapError(explain_pip(self._output.read_text(errors="replace")))
                return True
        self._step += 1
        if self._step == len(self._steps):
            self._finish()
            return False
        self._start(self._steps[self._step])
        return True

    def installed(self) -> int:
        return sum(1 for _ in self.folder.glob("lib/python*/site-packages/*.dist-info"))

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        shutil.rmtree(self._output.parent, ignore_errors=True)

    def _plan(self, python: str) -> list[list[str]]:
        steps = []
        if not _can_run_pip(self.folder):
            if self.folder.exists():
                shutil.rmtree(self.folder)
            steps.append([python, "-m", "venv", str(self.folder)])
        pip = [str(self.folder / "bin" / "python"), "-m", "pip"]
        install = [*pip, "install", "--disable-pip-version-check", "--no-input", "--retries", "2"]
        install += ["--no-deps", "--require-hashes", "--only-binary", ":all:"]
        install += [*(["--no-compile"] if self.environment.warm_up else []), "-r"]
        lock = self._root / self.environment.lock
        if self.environment.first:
            excerpt = self._output.with_name("first.txt")
            excerpt.write_text(lock_files.excerpt(lock.read_text(), self.environment.first))
            steps.append([*install, str(excerpt)])
        steps.append([*install, str(lock)])
        if self.environment.warm_up:
            steps.append([pip[0], "-c", f"import {', '.join(self.environment.warm_up)}"])
        return steps

    def _is_warming_up(self) -> bool:
        return self._steps[self._step][1] == "-c"

    def _start(self, command: list[str]) -> None:
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env=compiling_environ(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def _retry_with_torch_index(self) -> bool:
        """Once, and only for the package that public indexes do not carry."""
        command = self._steps[self._step]
        is_first = self.environment.first and command[-1].endswith("first.txt")
        if not is_first or self._used_torch_index:
            return False
        self._used_torch_index = True
        index = os.environ.get("PENSTOCK_TORCH_CPU_INDEX") or TORCH_CPU_INDEX
        self._start([*command, "--extra-index-url", index])
        return True

    def _finish(self) -> None:
        site_packages = next(self.folder.glob("lib/python*/site-packages"))
        roots = [str((self._root / each).resolve()) for each in self.environment.source_roots]
        (site_packages / "penstock.pth").write_text("\n".join(roots) + "\n")
        self._remove_strangers()
        _stamp_path(self._root, self.environment).write_text(stamp(self._root, self.environment))
        shutil.rmtree(self._output.parent, ignore_errors=True)

    def _remove_strangers(self) -> None:
        """What an earlier lock left behind would make two machines differ."""
        locked = lock_files.packages((self._root / self.environment.lock).read_text())
        pip = [str(self.folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
        listing = subprocess.run(
            [*pip, "list", "--format=freeze"], capture_output=True, text=True, check=True
        )
        installed = {
            lock_files.normal(line.partition("==")[0]) for line in listing.stdout.splitlines()
        }
        strangers = sorted(installed - locked - {"pip", "setuptools"})
        if strangers:
            subprocess.run([*pip, "uninstall", "-y", *strangers], capture_output=True, check=True)

    def _note_output(self) -> None:
        self._log.write(self._output.read_text(errors="replace"))
        self._log.flush()


def _run_all(installs: Sequence[_Install]) -> None:
    began = time.monotonic()
    told = 0.0
    waiting = list(installs)
    try:
        while waiting:
            waiting = [install for install in waiting if install.advance()]
            if time.monotonic() - told > 3:
                told = time.monotonic()
                _say(_progress(installs, told - began))
            time.sleep(0.1)
    finally:
        for install in installs:
            install.stop()
    _say(f"Environments made in {time.monotonic() - began:.0f} s.")


def _progress(installs: Sequence[_Install], elapsed_seconds: float) -> str:
    parts = [
        f"{install.environment.folder} {min(install.installed(), install.total)}/{install.total}"
        for install in installs
    ]
    return f"Installing packages, {elapsed_seconds:3.0f} s: {', '.join(parts)}"


def compiling_environ() -> dict[str, str]:
    """Ours, but for what would keep Python from keeping what it compiled."""
    return {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _can_run_pip(folder: Path) -> bool:
    """A half-made environment that can go on, as opposed to one that must be made again."""
    python = folder / "bin" / "python"
    asked_for = [str(python), "-m", "pip", "--version"]
    try:
        asked = subprocess.run(asked_for, capture_output=True, text=True, check=False)
    except OSError:
        return False
    return asked.returncode == 0 and str(folder) in asked.stdout


def _stamp_path(root: Path, environment: Environment) -> Path:
    return root / environment.folder / "penstock-stamp"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _complain(sentence: str, status: int) -> int:
    sys.stderr.write(sentence + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
