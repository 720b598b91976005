"""What servers of ours have in common: how they are run, as whom, and where they are found.

Each is looked for on the machine first and in the wheels of the `local` extra second. A server
here is a folder, a port and a command; who runs the command (supervisord, a test run) is not its
business.
"""

import os
import pwd
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

GUARD = Path(__file__).with_name("guard.py")
LOOPBACK = "127.0.0.1"


class ServiceError(RuntimeError):
    """A server cannot be found or started; the message is one sentence that says how to fix it."""


def guarded(
    command: Sequence[str], *, user: "ServiceUser | None" = None, death_signal: str = "TERM"
) -> list[str]:
    """Return the command line that runs `command` and ends it when its parent process ends."""
    options = ["--signal", death_signal]
    if user is not None:
        options += ["--user", f"{user.uid}:{user.gid}"]
    return [sys.executable, "-I", "-S", str(GUARD), *options, "--", *command]


@dataclass(frozen=True, kw_only=True)
class ServiceUser:
    """The account that PostgreSQL runs under when we are root, which it refuses to be."""

    name: str
    uid: int
    gid: int


def unprivileged_user() -> ServiceUser | None:
    """Return the account to run PostgreSQL as; None unless we are root.

    Raises `ServiceError` if the machine has no such account.
    """
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return ServiceUser(name=name, uid=entry.pw_uid, gid=entry.pw_gid)
    raise ServiceError(
        "PostgreSQL refuses to run as root and this machine has neither a user `postgres` nor "
        "`nobody`: create one, or set PENSTOCK_DATABASE_URL to a server of yours."
    )


def version_of(binary: Path, user: ServiceUser | None) -> tuple[int, ...]:
    """Return the version that a server's `--version` names; empty if `user` cannot run it."""
    try:
        answer = subprocess.run(
            guarded([str(binary), "--version"], user=user),
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ()
    found = re.search(r"(?:v=|PostgreSQL\) )(\d+)(?:\.(\d+))?", answer.stdout)
    return tuple(int(part) for part in found.groups(default="0")) if found else ()


def wheel_folder(name: str) -> Path | None:
    """Return where a wheel is installed, without importing it; None if it is not."""
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))


def first_line(text: str) -> str:
    """Return the first line of a server's output."""
    return text.strip().splitlines()[0] if text.strip() else "no reason given"
