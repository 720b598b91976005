"""Passwords as commands take them: never as an argument, which other users of a machine can see."""

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser


def add_password_arguments(parser: CommandParser, *, required: bool) -> None:
    password = parser.add_mutually_exclusive_group(required=required)
    password.add_argument("--password-stdin", action="store_true", help="read one line")
    password.add_argument("--password-file", type=Path, help="read the file's first line")


def read_password(options: dict[str, Any]) -> str:
    path: Path | None = options["password_file"]
    try:
        text = sys.stdin.readline() if path is None else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"The password cannot be read from {path}: {error}") from error
    return text.splitlines()[0] if text.strip() else ""
