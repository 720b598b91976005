"""manage.py rebuild_usage_sums"""

from typing import Any

from inference.usage.pools.rebuild import rebuild_sums
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    is_one_transaction = False
    help = (
        "Sum up usage by pool, and errors by code, from the records again: once after an upgrade "
        "from a version that did not keep these sums, and where fsck finds them wrong. Usage is "
        "recorded meanwhile; repeating is safe."
    )

    def handle(self, *_: Any, **options: Any) -> None:
        hours = 0
        for hour in rebuild_sums():
            hours += 1
            if hours % 240 == 0 and not options["json"]:
                self.stdout.write(f"Back to {hour:%Y-%m-%d %H}h.")
        self.report(options, hours_rebuilt=hours)
