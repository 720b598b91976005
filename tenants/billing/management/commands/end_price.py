"""manage.py end_price org/model --at 2027-01-01 --yes"""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from tenants.billing.pricing import price_book
from tenants.management.arguments import moment
from tenants.management.confirmation import add_yes, confirm
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("model")
        parser.add_argument("--tier", default="")
        parser.add_argument("--adapter", default="")
        parser.add_argument("--at", type=moment)
        add_yes(parser)

    def handle(self, *_: Any, **options: Any) -> None:
        price = price_book.open_price(options["model"], options["tier"], options["adapter"])
        if price is None:
            raise CommandError("No open-ended price exists for this model, tier and adapter.")
        consequence = price_book.consequence_of_ending(price, options["at"])
        confirm(options, price.model, consequence, whose="the model's name")
        price_book.end(price, options["at"])
        self.report(
            options,
            price_id=str(price.id),
            model=price.model,
            tier=price.tier,
            adapter=price.adapter,
            effective_until=price.effective_until,
        )
