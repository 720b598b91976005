"""manage.py rerate --from 2026-11-01 --to 2026-11-15"""

from datetime import UTC, datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from inference.usage.rating.price_book import PriceBook
from inference.usage.rating.rerating import Adjustment, adjustments, rerate, tenants_with_usage
from tenants.management.arguments import day
from tenants.management.look_up import tenant_named
from tenants.management.reporting import ReportingCommand
from tenants.money import dollars


class Command(ReportingCommand):
    help = (
        "Post to the ledger what usage of past days should have cost by the price book and its "
        "corrections as they stand now. Nothing that was posted changes, and what was rated "
        "already is posted once."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--from", dest="first", type=day, required=True, help="UTC")
        parser.add_argument("--to", dest="last", type=day, required=True, help="UTC, inclusive")
        parser.add_argument("--tenant")
        parser.add_argument(
            "--dry-run", action="store_true", help="show the differences, post nothing"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        first, last = options["first"], options["last"]
        if last < first or last >= datetime.now(UTC).date():
            raise CommandError("--from and --to must be past days, --from not after --to.")
        if options["tenant"] is None:
            tenants = tenants_with_usage(first, last)
        else:
            tenants = [tenant_named(options["tenant"]).id]
        book = PriceBook()
        rate = adjustments if options["dry_run"] else rerate
        found = [each for tenant in tenants for each in rate(tenant, first, last, book)]
        self.report_rows(options, [_row(each) for each in found], of="differences")


def _row(adjustment: Adjustment) -> dict[str, str | int]:
    return {
        "tenant_id": str(adjustment.tenant_id),
        "model": adjustment.model,
        "day": adjustment.day.isoformat(),
        "nanos": adjustment.nanos,
        "amount": dollars(adjustment.nanos),
    }
