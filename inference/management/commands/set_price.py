"""manage.py set_price org/model --prompt 0.15 --completion 0.60"""

from decimal import Decimal
from typing import Any

from django.core.management.base import CommandError, CommandParser

from inference.management.look_up import model_named
from tenants.billing.models import Price
from tenants.billing.pricing import price_book
from tenants.management.arguments import dollar_amount, moment, permille
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    help = (
        "Set what a model costs, in dollars per million tokens. The price that holds until then "
        "ends; what was used before keeps it."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add_price_arguments(parser)
        parser.add_argument(
            "--from",
            dest="begin",
            type=moment,
            help="e.g. 2027-01-01; default: now, or in 5 seconds where it takes another's place",
        )
        parser.add_argument("--until", type=moment, help="default: until another price replaces it")

    def handle(self, *_: Any, **options: Any) -> None:
        price = price_book.enter(
            Price(
                **price_fields(options),
                effective_from=options["begin"],
                effective_until=options["until"],
            )
        )
        self.report(
            options,
            price_id=str(price.id),
            model=price.model,
            tier=price.tier,
            adapter=price.adapter,
            prompt_micros=price.prompt_micros_per_million_tokens,
            cached_micros=price.cached_micros_per_million_tokens,
            completion_micros=price.completion_micros_per_million_tokens,
            batch_discount_permille=price.batch_discount_permille,
            effective_from=price.effective_from,
            effective_until=price.effective_until,
        )


def add_price_arguments(parser: CommandParser) -> None:
    parser.add_argument("model")
    parser.add_argument("--prompt", type=dollar_amount, required=True)
    parser.add_argument("--completion", type=dollar_amount, required=True)
    parser.add_argument("--cached", type=dollar_amount)
    parser.add_argument(
        "--tier", default="", help="only for this tier; the tier multiplier is not applied"
    )
    parser.add_argument("--adapter", default="")
    parser.add_argument(
        "--batch-discount",
        type=permille,
        default=0,
        metavar="PERCENT",
        help="discount for requests of service class batch: 12.5 is an eighth off",
    )


def price_fields(options: dict[str, Any]) -> dict[str, Any]:
    cached = options["prompt"] if options["cached"] is None else options["cached"]
    return {
        "model": model_named(options["model"]).name,
        "tier": options["tier"],
        "adapter": options["adapter"],
        "prompt_micros_per_million_tokens": _micros(options["prompt"]),
        "cached_micros_per_million_tokens": _micros(cached),
        "completion_micros_per_million_tokens": _micros(options["completion"]),
        "batch_discount_permille": options["batch_discount"],
    }


def _micros(amount: Decimal) -> int:
    micros = amount * 10**6
    if micros != int(micros):
        raise CommandError(f"A price is exact to the micro-dollar, got {amount}.")
    return int(micros)
