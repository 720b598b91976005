"""manage.py seed_usage --rows 10000000 --tenants 1000 --into-this-database"""

from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from inference.usage.seed import seed_usage
from tenants.management.reporting import ReportingCommand

_MOST_DAYS = 365  # partitions are made for a year


class Command(ReportingCommand):
    is_one_transaction = False
    help = "Fill a benchmark database with usage, rollups and charges."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--rows", type=int, default=10_000_000)
        parser.add_argument("--tenants", type=int, default=1_000)
        parser.add_argument("--days", type=int, default=90, help="before today, at most a year")
        parser.add_argument(
            "--into-this-database",
            action="store_true",
            help="required, because ledgers are never emptied",
        )

    def handle(self, *_: Any, **options: Any) -> None:
        if not options["into_this_database"]:
            name = settings.DATABASES["default"]["NAME"]
            raise CommandError(
                f"This fills the database {name!r} with usage that is permanently charged to "
                "tenants; pass --into-this-database to confirm."
            )
        if options["rows"] < 1 or options["tenants"] < 1 or not 1 <= options["days"] <= _MOST_DAYS:
            raise CommandError(
                f"It takes one row and tenant or more, and from one day to {_MOST_DAYS}."
            )
        seed = seed_usage(rows=options["rows"], tenants=options["tenants"], days=options["days"])
        self.report(
            options,
            tenants_added=seed.tenants,
            records_added=seed.records,
            seconds=f"{seed.seconds:.1f}",
        )
