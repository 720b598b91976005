"""manage.py create_operator someone@example.org --password-stdin"""

from typing import Any

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from tenants.management.passwords import add_password_arguments, read_password
from tenants.management.reporting import ReportingCommand
from tenants.models import User


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("email")
        add_password_arguments(parser, required=True)

    def handle(self, *_: Any, **options: Any) -> None:
        user = User(email=options["email"].strip().lower(), is_staff=True, is_superuser=True)
        password = read_password(options)
        try:
            user.full_clean(exclude=["password"])
            validate_password(password, user)
        except ValidationError as error:
            raise CommandError(f"{options['email']}: {' '.join(error.messages)}") from error
        user.set_password(password)
        user.save()
        self.report(options, user_id=str(user.id), email=user.email)
