"""manage.py collect_usage"""

import signal
import threading
from typing import Any

from django.core.management.base import CommandParser

from inference.usage.collector import UsageCollector, dispatch_redis, run_collectors
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    is_one_transaction = False
    help = "Collect usage from the workers' streams into PostgreSQL, until SIGTERM."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--once", action="store_true", help="record everything available, then exit"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        if not options["once"]:
            run_collectors(_stop_at_signal())
            return
        with dispatch_redis() as redis:
            collected = UsageCollector(redis).drain()
        self.report(options, collected=collected)


def _stop_at_signal() -> threading.Event:
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    return stop
