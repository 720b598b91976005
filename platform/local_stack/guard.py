"""Runs a command that ends when its parent does and leaves no core dump:
`python guard.py [options] -- command ...`.

Standard library only and no package imports, since it is run by path, once per service. It drops
root first where asked, because changing the user clears the parent-death signal, then sets that
signal, then becomes the command.
"""

import argparse
import ctypes
import os
import resource
import signal
import sys
from collections.abc import Sequence

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(arguments: Sequence[str]) -> None:
    """Become the command. Raises `OSError` if it cannot be run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--user", type=_parse_user, help="UID:GID to run the command as")
    parser.add_argument("--signal", default="TERM", help="sent when the parent dies")
    parser.add_argument("command", nargs="+")
    parent = os.getppid()
    options = parser.parse_args(arguments)
    if options.user is not None:
        become(*options.user)
    # Redis and PostgreSQL hold what their core would hold: prompts, usage, secrets.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    die_with_parent(signal.Signals[f"SIG{options.signal}"], parent)
    os.execvp(options.command[0], options.command)  # noqa: S606


def become(uid: int, gid: int) -> None:
    """Give up root permanently, groups included."""
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if not os.access(".", os.X_OK):
        os.chdir("/")


def die_with_parent(death_signal: signal.Signals, parent: int) -> None:
    """Ask the kernel for a signal at the parent's death; exit if the parent has died already.
    Raises `OSError` if the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        sys.exit("The parent ended before its service began.")


def _parse_user(text: str) -> tuple[int, int]:
    uid, _, gid = text.partition(":")
    return int(uid), int(gid)


if __name__ == "__main__":
    main(sys.argv[1:])
