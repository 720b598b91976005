"""manage.py list_members Acme [--role owner]"""

from typing import Any

from django.core.management.base import CommandParser

from tenants.management.look_up import tenant_named
from tenants.management.reporting import Fact, ReportingCommand
from tenants.permissions import Role


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")
        parser.add_argument(
            "--role", choices=[role.value for role in Role], help="only those with this role"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        members = tenant_named(options["tenant"]).memberships.select_related("user")
        if options["role"] is not None:
            members = members.filter(role=options["role"])
        rows: list[dict[str, Fact]] = [
            {
                "email": member.user.email,
                "role": member.role,
                "gets_alerts": member.gets_alerts,
                "joined_at": member.created_at,
            }
            for member in members.order_by("user__email")
        ]
        self.report_rows(options, rows, of="members")
