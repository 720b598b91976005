"""manage.py list_prices [--model org/model] [--all]"""

from typing import Any

from django.core.management.base import CommandParser
from django.db.models import Q
from django.utils import timezone

from tenants.billing.models import Price
from tenants.management.reporting import Fact, ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--model", help="only of this model")
        parser.add_argument("--all", action="store_true", help="those that have ended, too")

    def handle(self, *_: Any, **options: Any) -> None:
        found = Price.objects.all()
        if options["model"] is not None:
            found = found.filter(model=options["model"])
        if not options["all"]:
            found = found.filter(Q(effective_until=None) | Q(effective_until__gt=timezone.now()))
        rows: list[dict[str, Fact]] = [
            {
                "model": price.model,
                "tier": price.tier,
                "adapter": price.adapter,
                "prompt_micros": price.prompt_micros_per_million_tokens,
                "cached_micros": price.cached_micros_per_million_tokens,
                "completion_micros": price.completion_micros_per_million_tokens,
                "batch_discount_permille": price.batch_discount_permille,
                "effective_from": price.effective_from,
                "effective_until": price.effective_until,
                "price_id": str(price.id),
            }
            for price in found
        ]
        self.report_rows(options, rows, of="prices")
