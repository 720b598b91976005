"""manage.py set_storage_price --per-gib-month 0.10"""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from tenants.billing.models import StoragePrice
from tenants.billing.pricing import price_book
from tenants.management.arguments import dollar_amount, moment
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--per-gib-month", type=dollar_amount, required=True)
        parser.add_argument("--from", dest="begin", type=moment, help="default: now")

    def handle(self, *_: Any, **options: Any) -> None:
        micros = options["per_gib_month"] * 10**6
        if micros != int(micros):
            raise CommandError("A price is exact to the micro-dollar.")
        price = price_book.enter(
            StoragePrice(micros_per_gib_month=int(micros), effective_from=options["begin"])
        )
        self.report(
            options,
            micros_per_gib_month=price.micros_per_gib_month,
            effective_from=price.effective_from,
        )
