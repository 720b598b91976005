"""`python -m local_stack WORD`, behind the words of the Makefile."""

import argparse
import os
import sys
import time
from collections.abc import Sequence

from gpu_workers.config import read_env_file
from local_stack.bootstrap import ROOT
from local_stack.services import ServiceError
from local_stack.settings import StackSettings
from local_stack.stack import Stack, accounts


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="local_stack", description="Penstock on this machine.")
    parser.add_argument("word", choices=["up", "down", "status", "env", "shell"])
    word = parser.parse_args(arguments).word
    try:
        stack = Stack(ROOT, ROOT / "var", StackSettings.read(ROOT, os.environ))
        return {"up": _up, "down": _down, "status": _status, "env": _env, "shell": _shell}[word](
            stack
        )
    except ServiceError as problem:
        return _complain(str(problem))
    except PermissionError as error:
        return _complain(
            f"{error.filename} belongs to another user: run as that user, or remove it."
        )
    except OSError as error:
        return _complain(f"{error.strerror}: {error.filename}.")
    except KeyboardInterrupt:
        return _complain("Interrupted; `make up` goes on from here, `make down` stops it.", 130)


def _up(stack: Stack) -> int:
    began = time.monotonic()
    if not stack.up(_say):
        _say(f"Penstock is up: {stack.url}/ (keys and accounts: {stack.demo_env_file})")
        return 0
    _say(f"Up after {time.monotonic() - began:.0f} s.\n")
    for line in accounts(read_env_file(stack.demo_env_file)):
        _say(line)
    return 0


def _down(stack: Stack) -> int:
    _say("Stopped; the data is kept." if stack.down(_say) else "Penstock was not running.")
    return 0


def _status(stack: Stack) -> int:
    lines = stack.describe() if stack.var.exists() else []
    for line in lines or ["Penstock is not running."]:
        _say(line)
    return 0 if lines else 3


def _env(stack: Stack) -> int:
    """The services' settings as lines, for a program that wants to be told the same."""
    for name, value in stack.environ.items():
        if name.startswith("PENSTOCK_"):
            _say(f"{name}={value}")
    return 0


def _shell(stack: Stack) -> int:
    """A shell for manage.py, with the settings of the stack."""
    shell = os.environ.get("SHELL", "/bin/sh")
    os.execvpe(shell, [shell], {**os.environ, **stack.environ})  # noqa: S606


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _complain(sentence: str, status: int = 1) -> int:
    sys.stderr.write(sentence + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
