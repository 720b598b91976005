"""manage.py drain_worker NAME [--pool POOL] [--wait]"""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from inference.operations import drain
from inference.operations.drain import DrainError
from inference.usage.collector import dispatch_redis
from tenants.isolation.scoping import operator_scope
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    is_one_transaction = False
    help = (
        "Drain a worker: it takes no new requests, finishes those it has or hands them to other "
        "workers, and exits with status 0."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name", help="the worker's name, as the fleet page shows it")
        parser.add_argument("--pool", default="", help="its pool, if several have the name")
        parser.add_argument("--wait", action="store_true", help="wait until it has left")
        parser.add_argument(
            "--timeout-seconds", type=float, default=600.0, help="how long --wait waits"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        with dispatch_redis() as redis:
            try:
                worker = drain.find_worker(redis, options["name"], pool=options["pool"])
                with operator_scope("drain of a worker"):
                    drain.drain_worker(redis, worker)
                if options["wait"]:
                    drain.wait_until_gone(redis, worker, timeout_seconds=options["timeout_seconds"])
            except DrainError as error:
                raise CommandError(str(error)) from None
        self.report(
            options,
            worker_id=worker.worker_id,
            pool=worker.pool,
            state="gone" if options["wait"] else "draining",
        )
