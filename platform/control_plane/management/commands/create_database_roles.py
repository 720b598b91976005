"""manage.py create_database_roles: once, before the first `migrate` on a PostgreSQL of yours."""

from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from control_plane.database_roles import prepare_database


class Command(BaseCommand):
    help = (
        "Create the roles penstock_owner, penstock_web and penstock_operator and their database. "
        "Reads the URL of a superuser from PENSTOCK_ADMIN_DATABASE_URL, passwords and the "
        "database's name from PENSTOCK_OWNER_DATABASE_URL and PENSTOCK_DATABASE_URL."
    )
    requires_system_checks = ()

    def handle(self, *_: Any, **options: Any) -> None:
        owner = urlsplit(_given("PENSTOCK_OWNER_DATABASE_URL", settings.ENV.owner_database_url))
        web = urlsplit(settings.ENV.database_url)
        admin_url = _given("PENSTOCK_ADMIN_DATABASE_URL", settings.ENV.admin_database_url)
        try:
            prepare_database(
                admin_url,
                unquote(web.path.strip("/")),
                owner_password=unquote(owner.password or ""),
                web_password=unquote(web.password or ""),
            )
        except psycopg.Error as error:
            raise CommandError(f"PostgreSQL refused: {str(error).splitlines()[0]}") from None
        self.stdout.write("Roles and database exist; run `manage.py migrate` next.")


def _given(name: str, value: str) -> str:
    if not value:
        raise CommandError(f"{name} is not set.")
    return value
