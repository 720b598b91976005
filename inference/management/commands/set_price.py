"""manage.py set_price org/model --prompt 0.15 --completion 0.60"""

from decimal import Decimal
from typing import Any

from django.core.management.base import CommandError, CommandParser

from inference.management.look_up import model_named
from tenants.management.arguments import dollars
from tenants.management.reporting import ReportingCommand
from tenants.models import Price


class Command(ReportingCommand):
    help = "Set what a model costs from now on, in dollars per million tokens."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("model")
        parser.add_argument("--prompt", type=dollars, required=True)
        parser.add_argument("--completion", type=dollars, required=True)
        parser.add_argument("--cached", type=dollars, help="default: as the prompt")

    def handle(self, *_: Any, **options: Any) -> None:
        model = model_named(options["model"])
        cached = options["prompt"] if options["cached"] is None else options["cached"]
        price = Price(
            model=model.name,
            prompt_micros_per_million_tokens=_micros(options["prompt"]),
            cached_micros_per_million_tokens=_micros(cached),
            completion_micros_per_million_tokens=_micros(options["completion"]),
        )
        price.full_clean()
        price.save()
        self.report(
            options,
            price_id=str(price.id),
            model=model.name,
            prompt_micros=price.prompt_micros_per_million_tokens,
            cached_micros=price.cached_micros_per_million_tokens,
            completion_micros=price.completion_micros_per_million_tokens,
        )


def _micros(amount: Decimal) -> int:
    micros = amount * 10**6
    if micros != int(micros):
        raise CommandError(f"A price is exact to the micro-dollar, got {amount}.")
    return int(micros)
