"""manage.py migrate, signed in as the owner of the tables."""

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.core.management.commands.migrate import Command as Migrate


class Command(Migrate):
    def handle(self, *args: Any, **options: Any) -> None:
        if options["database"] == "default":
            if "owner" not in settings.DATABASES:
                raise CommandError(
                    "PENSTOCK_OWNER_DATABASE_URL is not set: migrations change tables, which the "
                    "role of PENSTOCK_DATABASE_URL may not. `manage.py create_database_roles` "
                    "makes both roles."
                )
            options["database"] = "owner"
        super().handle(*args, **options)
