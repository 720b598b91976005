"""manage.py list_quotas Acme"""

from typing import Any

from django.core.management.base import CommandParser

from tenants.management.look_up import tenant_named
from tenants.management.reporting import Fact, ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")

    def handle(self, *_: Any, **options: Any) -> None:
        quotas = tenant_named(options["tenant"]).quotas.select_related("project", "api_key")
        rows: list[dict[str, Fact]] = [
            {
                "limit": quota.limit,
                "value": quota.value if options["json"] else quota.amount,
                "scope": quota.scope,
                "project": quota.project.name if quota.project else "",
                "api_key": quota.api_key.public_id if quota.api_key else "",
                "is_hard": quota.is_hard,
                "set_by": "member" if quota.is_own else "operator",
                "quota_id": str(quota.id),
            }
            for quota in quotas.order_by("api_key", "project", "limit", "is_own")
        ]
        self.report_rows(options, rows, of="quotas")
