"""manage.py drain_worker NAME [--pool POOL] [--stay] [--wait]"""

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
        "workers, and exits with status 0; or it stays, until `resume_worker`."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add_worker_arguments(parser)
        parser.add_argument(
            "--stay", action="store_true", help="do not exit; take nothing until it is resumed"
        )
        parser.add_argument("--wait", action="store_true", help="wait until it has drained")
        parser.add_argument(
            "--timeout-seconds", type=float, default=600.0, help="how long --wait waits"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        with dispatch_redis() as redis:
            try:
                worker = drain.find_worker(redis, options["name"], pool=options["pool"])
                with operator_scope("drain of a worker"):
                    drain.drain_worker(redis, worker, stays=options["stay"])
                if options["wait"]:
                    drain.wait_until_drained(
                        redis,
                        worker,
                        stays=options["stay"],
                        timeout_seconds=options["timeout_seconds"],
                    )
            except DrainError as error:
                raise CommandError(str(error)) from None
        self.report(
            options,
            worker_id=worker.worker_id,
            pool=worker.pool,
            state=(("drained" if options["stay"] else "gone") if options["wait"] else "draining"),
        )


def add_worker_arguments(parser: CommandParser) -> None:
    parser.add_argument("name")
    parser.add_argument("--pool", default="")
