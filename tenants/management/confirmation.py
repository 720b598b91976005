"""Asks before a command does what cannot be taken back, or hands out a tenant's data."""

import sys
from typing import Any

from django.core.management.base import CommandError, CommandParser


def add_yes(parser: CommandParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def confirm(
    options: dict[str, Any], name: str, what: str, *, whose: str = "the tenant's name"
) -> None:
    """Raise `CommandError` unless there is `--yes`, or the name is typed. `whose` says what name
    that is."""
    if options["yes"]:
        return
    if not sys.stdin.isatty():
        raise CommandError(
            f"This {what}. Pass --yes, or run it in a terminal where the name can be typed."
        )
    sys.stderr.write(f"This {what}. Type {whose} to continue: ")
    sys.stderr.flush()
    typed = sys.stdin.readline().strip()
    if typed != name:
        raise CommandError(f"{typed!r} is not the name {name!r}; nothing was changed.")
