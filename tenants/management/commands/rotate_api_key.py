"""manage.py rotate_api_key <id, public id or the whole key> --overlap 24h"""

from typing import Any

from django.core.management.base import CommandParser

from tenants.access.api_keys import rotate_api_key
from tenants.management.arguments import duration
from tenants.management.look_up import api_key_named
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("id")
        parser.add_argument(
            "--overlap", type=duration, default="24h", help="how long both work (default: 24h)"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        record = api_key_named(options["id"])
        key = rotate_api_key(record, overlap=options["overlap"])
        self.report(
            options,
            api_key_id=str(record.id),
            public_id=record.public_id,
            previous_works_until=record.previous_expires_at,
            key=key,
        )
