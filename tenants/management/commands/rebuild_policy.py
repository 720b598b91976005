"""manage.py rebuild_policy"""

from typing import Any

from tenants.management.reporting import ReportingCommand
from tenants.policy.writer import rebuild_policy


class Command(ReportingCommand):
    is_one_transaction = False

    def handle(self, *_: Any, **options: Any) -> None:
        self.report(options, version=rebuild_policy())
