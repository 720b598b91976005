"""manage.py rebuild_policy"""

from typing import Any

from django.core.management.base import CommandError
from redis.exceptions import RedisError

from tenants.management.reporting import ReportingCommand
from tenants.policy import rebuild_policy


class Command(ReportingCommand):
    help = "Write the whole policy snapshot to Redis, whatever is there."

    def handle(self, *_: Any, **options: Any) -> None:
        try:
            version = rebuild_policy()
        except RedisError as error:
            raise CommandError(f"The dispatch Redis does not answer: {error}") from None
        self.report(options, version=version)
