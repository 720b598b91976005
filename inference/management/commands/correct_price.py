"""manage.py correct_price org/model --prompt 0.15 --completion 0.60 --from 2026-11-01 --until
2026-11-15 --reason "entered a fortnight late" """

from typing import Any

from django.core.management.base import CommandParser

from inference.management.commands.set_price import add_price_arguments, price_fields
from tenants.billing.models import PriceCorrection
from tenants.management.arguments import moment
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    help = (
        "Correct the price of a past period. Nothing already charged changes: "
        "manage.py rerate posts the difference."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add_price_arguments(parser)
        parser.add_argument("--from", dest="begin", type=moment, required=True)
        parser.add_argument("--until", type=moment, required=True)
        parser.add_argument(
            "--reason", required=True, help="stored permanently; do not include personal data"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        correction = PriceCorrection(
            **price_fields(options),
            effective_from=options["begin"],
            effective_until=options["until"],
            reason=options["reason"],
        )
        correction.full_clean()
        correction.save()
        self.report(
            options,
            correction_id=str(correction.id),
            model=correction.model,
            tier=correction.tier,
            adapter=correction.adapter,
            effective_from=correction.effective_from,
            effective_until=correction.effective_until,
        )
