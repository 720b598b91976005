"""manage.py set_gpu_cost pool --per-gpu-hour 2.50 --gpus-per-worker 2"""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from tenants.billing.models import PoolCost
from tenants.billing.pricing import price_book
from tenants.management.arguments import dollar_amount, moment
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("pool")
        parser.add_argument("--per-gpu-hour", type=dollar_amount, required=True)
        parser.add_argument("--gpus-per-worker", type=int, default=1)
        parser.add_argument("--from", dest="begin", type=moment, help="default: now")

    def handle(self, *_: Any, **options: Any) -> None:
        micros = options["per_gpu_hour"] * 10**6
        if micros != int(micros):
            raise CommandError("A cost is exact to the micro-dollar.")
        cost = price_book.enter(
            PoolCost(
                pool=options["pool"],
                micros_per_gpu_hour=int(micros),
                gpus_per_worker=options["gpus_per_worker"],
                effective_from=options["begin"],
            )
        )
        self.report(
            options,
            pool=cost.pool,
            micros_per_gpu_hour=cost.micros_per_gpu_hour,
            gpus_per_worker=cost.gpus_per_worker,
            effective_from=cost.effective_from,
        )
