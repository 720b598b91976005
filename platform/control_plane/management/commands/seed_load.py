"""manage.py seed_load --tenants 10000 --keys 50000 --into-this-database"""

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from tenants.access.load_seed import seed_load
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    is_one_transaction = False
    help = "Fill a benchmark database with tenants, members and API keys."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--tenants", type=int, default=10_000)
        parser.add_argument("--keys", type=int, default=50_000)
        parser.add_argument(
            "--into-this-database",
            action="store_true",
            help="required, because the keys really work",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        if not options["into_this_database"]:
            name = settings.DATABASES["default"]["NAME"]
            raise CommandError(
                f"This fills the database {name!r} with tenants and keys that work; "
                "pass --into-this-database to confirm."
            )
        if options["tenants"] < 1 or options["keys"] < 0:
            raise CommandError("It takes one tenant or more, and no negative number of keys.")
        seed = seed_load(tenants=options["tenants"], keys=options["keys"])
        self.report(
            options,
            tenants_added=seed.tenants,
            api_keys_added=seed.api_keys,
            seconds=f"{seed.seconds:.1f}",
        )
