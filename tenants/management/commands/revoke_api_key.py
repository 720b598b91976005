"""manage.py revoke_api_key <id, public id or the whole key>"""

from typing import Any

from django.core.management.base import CommandParser

from tenants.access.api_keys import revoke_api_key
from tenants.management.look_up import api_key_named
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("id")

    def handle(self, *_: Any, **options: Any) -> None:
        key = api_key_named(options["id"])
        revoked_at = revoke_api_key(key)
        self.report(
            options,
            api_key_id=str(key.id),
            public_id=key.public_id,
            revoked_at=revoked_at,
        )
