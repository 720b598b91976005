"""manage.py show_margins --from 2026-11-01 --to 2026-11-30 --by model"""

from datetime import UTC, datetime, time, timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser

from inference.usage.pools.margins import By, Margin, Margins, SumsMissing, margins
from tenants.management.arguments import day
from tenants.management.reporting import Fact, ReportingCommand
from tenants.models import Tenant
from tenants.money import dollars

_HOUR_MS = 3_600_000
# No name of a model or a tenant.
_IDLE = "(idle)"


class Command(ReportingCommand):
    help = (
        "Show what each pool, model or tenant earned and cost, also per 1,000 tokens. What the "
        "GPUs of a pool cost in an hour (set_gpu_cost) is dealt out by tokens, one of an output as "
        "two; hours in which it did nothing are idle."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--from", dest="first", type=day, required=True, help="UTC")
        parser.add_argument("--to", dest="last", type=day, required=True, help="UTC, inclusive")
        parser.add_argument("--by", choices=list(By), default=By.POOL)

    def handle(self, *_: Any, **options: Any) -> None:
        begin = datetime.combine(options["first"], time.min, UTC)
        end = datetime.combine(options["last"], time.min, UTC) + timedelta(days=1)
        by = By(options["by"])
        try:
            found = margins(begin, end, by)
        except SumsMissing as error:
            raise CommandError(str(error)) from None
        rows = _pools(found) if by is By.POOL else _others(found, by)
        self.report_rows(options, rows, of=f"{by}s with usage or costs")


def _pools(found: Margins) -> list[dict[str, Fact]]:
    return [
        {
            "pool": margin.of,
            "tokens": margin.tokens,
            "gpu_hours": f"{margin.gpu_ms / _HOUR_MS:.2f}",
            **_money(margin),
            "idle": dollars(margin.idle_nanos),
        }
        for margin in found.rows
    ]


def _others(found: Margins, by: By) -> list[dict[str, Fact]]:
    names: dict[str, str] = {}
    if by is By.TENANT:
        tenants = Tenant.objects.filter(id__in=[margin.of for margin in found.rows])
        names = {str(tenant.id): tenant.name for tenant in tenants}
    rows: list[dict[str, Fact]] = []
    for margin in found.rows:
        name: dict[str, Fact] = {"name": names[margin.of]} if by is By.TENANT else {}
        rows.append({str(by): margin.of, **name, "tokens": margin.tokens, **_money(margin)})
    if found.idle_nanos:
        idle = Margin(
            of=_IDLE, tokens=0, revenue_nanos=0, dealt_nanos=0, idle_nanos=found.idle_nanos
        )
        nobody: dict[str, Fact] = {"name": ""} if by is By.TENANT else {}
        rows.append({str(by): idle.of, **nobody, "tokens": 0, **_money(idle)})
    return rows


def _money(margin: Margin) -> dict[str, Fact]:
    per_1k = margin.cost_nanos_per_1k_tokens
    return {
        "revenue": dollars(margin.revenue_nanos),
        "cost": dollars(margin.cost_nanos),
        "margin": dollars(margin.margin_nanos),
        "cost_per_1k_tokens": None if per_1k is None else dollars(per_1k),
    }
