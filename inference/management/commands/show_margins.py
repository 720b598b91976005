"""manage.py show_margins --from 2026-11-01 --to 2026-11-30"""

from typing import Any

from django.core.management.base import CommandParser

from inference.usage.margins import Margin, margins
from tenants.management.arguments import day
from tenants.management.reporting import Fact, ReportingCommand
from tenants.money import dollars

_HOUR_MS = 3_600_000


class Command(ReportingCommand):
    help = "Show what each pool earned and its GPUs cost (set_gpu_cost), also per 1,000 tokens."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--from", dest="first", type=day, required=True, help="UTC")
        parser.add_argument("--to", dest="last", type=day, required=True, help="UTC, inclusive")

    def handle(self, *_: Any, **options: Any) -> None:
        found = margins(options["first"], options["last"])
        self.report_rows(
            options, [_row(margin) for margin in found], of="pools with usage or costs"
        )


def _row(margin: Margin) -> dict[str, Fact]:
    per_1k = margin.cost_nanos_per_1k_tokens
    return {
        "pool": margin.pool,
        "tokens": margin.tokens,
        "gpu_hours": f"{margin.gpu_ms / _HOUR_MS:.2f}",
        "revenue": dollars(margin.revenue_nanos),
        "cost": dollars(margin.cost_nanos),
        "margin": dollars(margin.margin_nanos),
        "cost_per_1k_tokens": None if per_1k is None else dollars(per_1k),
    }
