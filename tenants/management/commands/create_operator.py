"""manage.py create_operator someone@example.org --password-stdin"""

import sys
from pathlib import Path
from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from tenants.management.reporting import ReportingCommand
from tenants.models import User


class Command(ReportingCommand):
    help = "Make an account for the operators' admin."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("email")
        password = parser.add_mutually_exclusive_group(required=True)
        password.add_argument("--password-stdin", action="store_true", help="read one line")
        password.add_argument("--password-file", type=Path, help="read the file's first line")

    def handle(self, *_: Any, **options: Any) -> None:
        user = User(email=options["email"].strip().lower(), is_staff=True, is_superuser=True)
        password = _read_password(options["password_file"])
        try:
            user.full_clean(exclude=["password"])
            validate_password(password, user)
        except ValidationError as error:
            raise CommandError(f"{options['email']}: {' '.join(error.messages)}") from None
        user.set_password(password)
        user.save()
        self.report(options, user_id=str(user.id), email=user.email)


def _read_password(path: Path | None) -> str:
    try:
        text = sys.stdin.readline() if path is None else path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"The password cannot be read from {path}: {error}") from None
    return text.splitlines()[0] if text.strip() else ""
