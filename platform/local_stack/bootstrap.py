"""Makes the two environments: `.venv` for the control plane, `.venv-engine` for the GPU worker.

Run by whichever Python is there, before anything is installed: so standard library only. A stamp,
written last, records which lock an environment was made from; without it, or with another, the
environment is completed. Every failure is reported in one sentence that says how to fix it.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - run by any Python
    sys.exit(
        "Penstock needs Python 3.11, 3.12 or 3.13 and this is {}.{}: install one "
        "(Debian, Ubuntu: apt-get install python3.11 python3.11-venv), or name it: "
        "make PYTHON=/path/to/python3.11 up.".format(*sys.version_info[:2])
    )

import argparse
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from local_stack.installation import uv
from local_stack.installation.environments import CONTROL_PLANE, Environment, engine_environment
from local_stack.installation.install import PAUSE_SECONDS, Install
from local_stack.installation.install_errors import InstallError, explain_os_error
from local_stack.installation.machine import check_disk, check_library
from local_stack.installation.progress import Progress

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str]) -> int:
    """Make what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(description="Make Penstock's environments.")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--control-plane-only", action="store_true")
    choice.add_argument("--engine-only", action="store_true")
    choice.add_argument("--up", action="store_true", help="and start Penstock, as early as it can")
    parser.add_argument("--root", type=Path, default=ROOT)
    options = parser.parse_args(arguments)
    try:
        with Progress(sys.stdout) as progress:
            if options.up:
                return make_and_start(options.root, engine_environment(), progress)
            control_plane = [] if options.engine_only else [CONTROL_PLANE]
            engine = [] if options.control_plane_only else [engine_environment()]
            make(options.root, [*control_plane, *engine], progress)
    except InstallError as problem:
        return _complain(str(problem), 1)
    except KeyboardInterrupt:
        return _complain("Interrupted. The next `make up` continues from here.", 130)
    return 0


def make(root: Path, environments: Sequence[Environment], progress: Progress) -> None:
    """Make the missing environments, in parallel. Raises `InstallError` if one cannot be made."""
    began = time.monotonic()
    with installing(root, environments, progress) as installs:
        _wait_for(installs, installs, progress)
    if installs:
        _say_made(installs, began, progress)


def make_and_start(root: Path, engine: Environment, progress: Progress) -> int:
    """Start Penstock as soon as its control plane is installed, while the engine still installs.

    Return the exit status of its start. Raises `InstallError` if an environment cannot be made.
    """
    began = time.monotonic()
    with installing(root, [CONTROL_PLANE, engine], progress) as installs:
        first = [install for install in installs if install.environment is CONTROL_PLANE]
        _wait_for(first, installs, progress)
        if first:
            _say_made(first, began, progress)
        progress.clear()
        command = [str(CONTROL_PLANE.python(root)), "-m", "local_stack", "up"]
        with subprocess.Popen(command, cwd=root) as start:
            try:
                while start.poll() is None and _unmade(installs):
                    time.sleep(PAUSE_SECONDS)
                return start.wait()
            except KeyboardInterrupt:
                return start.wait()  # the terminal has told it too
            except InstallError:
                start.terminate()
                raise


@contextmanager
def installing(
    root: Path, environments: Sequence[Environment], progress: Progress
) -> Iterator[list[Install]]:
    """Start making the missing environments; stop unfinished ones at the end of the block.

    Raises `InstallError` if the machine lacks something or uv cannot be had, and in place of any
    `OSError` within the block.
    """
    wanted = [each for each in environments if not each.is_made(root)]
    installs: list[Install] = []
    try:
        if wanted:
            check_disk(root, sum(each.needed_bytes for each in wanted))
            for library in {name for each in wanted for name in each.libraries}:
                check_library(library)
            (root / "var" / "log").mkdir(parents=True, exist_ok=True)
            progress.show("Preparing to install packages.")
            tool = uv.obtain(root)
            installs += [Install(root, each, tool) for each in wanted]
        for install in installs:
            install.start()
        yield installs
    except OSError as error:
        raise explain_os_error(error, root) from error
    finally:
        for install in installs:
            install.stop()


def _wait_for(wanted: Sequence[Install], installs: Sequence[Install], progress: Progress) -> None:
    """Wait until the wanted installs are done, showing the progress of all."""
    began = time.monotonic()
    while any(install in wanted for install in _unmade(installs)):
        status = ", ".join(install.describe() for install in installs)
        progress.show(f"Installing packages, {time.monotonic() - began:.0f} s: {status}")
        time.sleep(PAUSE_SECONDS)


def _unmade(installs: Sequence[Install]) -> list[Install]:
    return [install for install in installs if not install.poll()]


def _say_made(installs: Sequence[Install], began: float, progress: Progress) -> None:
    made = " and ".join(install.environment.folder for install in installs)
    progress.say(f"Installed the packages of {made} in {time.monotonic() - began:.0f} s.")


def _complain(sentence: str, status: int) -> int:
    sys.stderr.write(sentence + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
