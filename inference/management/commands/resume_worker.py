"""manage.py resume_worker NAME [--pool POOL]"""

from typing import Any

from django.core.management.base import CommandError, CommandParser

from inference.management.commands.drain_worker import add_worker_arguments
from inference.operations import drain
from inference.operations.drain import DrainError
from inference.usage.collector import dispatch_redis
from tenants.isolation.scoping import operator_scope
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    is_one_transaction = False

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        add_worker_arguments(parser)

    def handle(self, *_: Any, **options: Any) -> None:
        with dispatch_redis() as redis:
            try:
                worker = drain.find_worker(redis, options["name"], pool=options["pool"])
                with operator_scope("resumption of a worker"):
                    drain.resume_worker(redis, worker)
            except DrainError as error:
                raise CommandError(str(error)) from None
        self.report(options, worker_id=worker.worker_id, pool=worker.pool, state="ready")
