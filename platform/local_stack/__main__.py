"""`python -m local_stack WORD`, behind the words of the Makefile."""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from gpu_workers.config import read_env_file
from local_stack.bootstrap import ROOT
from local_stack.installation.environments import engine_environment
from local_stack.installation.install_errors import InstallError
from local_stack.installation.progress import Progress
from local_stack.services import ServiceError
from local_stack.settings import StackSettings
from local_stack.stack import Stack


def main(arguments: Sequence[str]) -> int:
    """Run a command of the Makefile; return the exit status."""
    parser = argparse.ArgumentParser(prog="local_stack", description="Penstock on this machine.")
    parser.add_argument("word", choices=["up", "down", "status", "env", "shell"])
    word = parser.parse_args(arguments).word
    try:
        stack = Stack(ROOT, ROOT / "var", StackSettings.read(ROOT, os.environ))
        return {"up": _up, "down": _down, "status": _status, "env": _env, "shell": _shell}[word](
            stack
        )
    except (ServiceError, InstallError) as problem:
        return _complain(str(problem))
    except PermissionError as error:
        return _complain(
            f"{error.filename} belongs to another user: run as that user, or remove it."
        )
    except OSError as error:
        return _complain(f"{error.strerror}: {error.filename}.")
    except KeyboardInterrupt:
        return _complain(
            "Interrupted. `make up` continues from here, `make down` stops everything.", 130
        )


def _up(stack: Stack) -> int:
    began = time.monotonic()
    with Progress(sys.stdout) as progress:
        was_down = stack.up(progress, engine_environment(), history=True)
    if was_down:
        _say(f"Started in {time.monotonic() - began:.0f} s.\n")
    for line in accounts(read_env_file(stack.demo_env_file)):
        _say(line)
    return 0


def _down(stack: Stack) -> int:
    with Progress(sys.stdout) as progress:
        was_up = stack.down(progress)
    _say("Stopped. The data is kept." if was_up else "Penstock is not running.")
    return 0


def _status(stack: Stack) -> int:
    lines = stack.describe() if stack.var.exists() else []
    for line in lines or ["Penstock is not running."]:
        _say(line)
    return 0 if lines else 3


def _env(stack: Stack) -> int:
    """Print the services' settings as KEY=value lines, for programs that need them."""
    for name, value in stack.environ.items():
        if name.startswith("PENSTOCK_"):
            _say(f"{name}={value}")
    return 0


def _shell(stack: Stack) -> int:
    """Become a shell that has the settings of the stack in its environment, and our Python before
    others on its PATH."""
    shell = os.environ.get("SHELL", "/bin/sh")
    arguments = [shell]
    if sys.stdin.isatty():
        _say(f"Penstock at {stack.url}/: `python manage.py help` lists what there is.")
        if Path(shell).name == "bash":
            arguments += ["--rcfile", str(_bash_settings(stack))]
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    os.execvpe(shell, arguments, {**os.environ, **stack.environ, "PATH": path})  # noqa: S606


def _bash_settings(stack: Stack) -> Path:
    """Write what bash reads in place of the user's own settings: those, then a prompt."""
    file = stack.var / "bashrc"
    file.write_text('[ -r ~/.bashrc ] && . ~/.bashrc\nPS1="(penstock) $PS1"\n', encoding="utf-8")
    return file


def accounts(demo_env: Mapping[str, str]) -> list[str]:
    """Return what `make up` prints last: address, accounts and a command to paste."""
    body = {
        "model": demo_env["PENSTOCK_MODEL"],
        "stream": True,
        "messages": [{"role": "user", "content": "What is Penstock?"}],
    }
    url, key = demo_env["PENSTOCK_URL"], demo_env["PENSTOCK_ACME_KEY"]
    return [
        f"Penstock is up: {url}/",
        f"  operator  {demo_env['PENSTOCK_OPERATOR_EMAIL']}  "
        f"{demo_env['PENSTOCK_OPERATOR_PASSWORD']}  ({url}/admin/)",
        f"  Acme      {demo_env['PENSTOCK_ACME_EMAIL']}  "
        f"{demo_env['PENSTOCK_ACME_PASSWORD']}  ({url}/t/)",
        f"  Globex    {demo_env['PENSTOCK_GLOBEX_EMAIL']}  "
        f"{demo_env['PENSTOCK_GLOBEX_PASSWORD']}  ({url}/t/)",
        f"  keys      {key}",
        f"            {demo_env['PENSTOCK_GLOBEX_KEY']}",
        "Paste this to stream a completion:",
        "",
        f"curl -N {url}/v1/chat/completions -H 'Authorization: Bearer {key}' "
        f"-H 'Content-Type: application/json' -d '{json.dumps(body)}'",
        "",
        "For dashboards with something to say: make demo-traffic (an hour), or make demo-traffic "
        'ARGS="--minutes 5".',
    ]


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _complain(sentence: str, status: int = 1) -> int:
    sys.stderr.write(sentence + "\n")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
