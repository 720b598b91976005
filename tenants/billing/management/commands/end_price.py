"""manage.py end_price org/model --at 2027-01-01 --yes"""

from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from tenants.billing.models import Price
from tenants.billing.pricing import price_book
from tenants.management.arguments import moment
from tenants.management.confirmation import add_yes, confirm
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    help = "End a price without a replacement; a model without a price is free."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("model")
        parser.add_argument("--tier", default="")
        parser.add_argument("--adapter", default="")
        parser.add_argument("--at", type=moment, help="default: now")
        add_yes(parser)

    def handle(self, *_: Any, **options: Any) -> None:
        price = price_book.open_price(options["model"], options["tier"], options["adapter"])
        if price is None:
            raise CommandError("No open-ended price exists for this model, tier and adapter.")
        confirm(options, price.model, _consequence(price, options["at"]), whose="the model's name")
        price_book.end(price, options["at"])
        self.report(
            options,
            price_id=str(price.id),
            model=price.model,
            tier=price.tier,
            adapter=price.adapter,
            effective_until=price.effective_until,
        )


def _consequence(price: Price, at: datetime | None) -> str:
    when = "now" if at is None else f"on {at:%d %B %Y, %H:%M} UTC"
    place = " and ".join(
        part
        for part in (
            price.tier and f"tier {price.tier}",
            price.adapter and f"adapter {price.adapter}",
        )
        if part
    )
    if place and price_book.open_price(price.model):
        return f"ends the price of {price.model} for {place} {when}; its general price applies then"
    whose = f"{price.model} for {place}" if place else price.model
    return f"makes {whose} free {when}, as no other price applies"
