"""manage.py migrate, signed in as the owner of the tables."""

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError
from django.core.management.commands.migrate import Command as Migrate
from django.db import connections
from django.db.migrations.loader import MigrationLoader


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
        if unknown := _diverging_migrations(options["database"]):
            raise CommandError(
                "This database was made by another version of Penstock: it has "
                f"{len(unknown)} migrations that this one does not know, {unknown[0]} the first. "
                "A development database is made anew: `make down`, delete var/data (as root the "
                "folder that var/data-folder names), `make up`."
            )
        super().handle(*args, **options)


def _diverging_migrations(database: str) -> list[str]:
    """Return what was applied there and is not known here, where there is also something to apply.
    With nothing to apply the database is only newer than this version, after a rollback of it."""
    loader = MigrationLoader(connections[database])
    if loader.graph.nodes.keys() <= loader.applied_migrations.keys():
        return []
    unknown = loader.applied_migrations.keys() - loader.graph.nodes.keys()
    return sorted(f"{app}.{name}" for app, name in unknown if app in loader.migrated_apps)
