"""manage.py list_quotas Acme [--limit tokens_per_day] [--project web]"""

from typing import Any

from django.core.management.base import CommandParser
from django.db.models import Q

from gpu_workers.protocol.policy import QUOTA_NAMES
from tenants.management.look_up import project_named, tenant_named
from tenants.management.reporting import Fact, ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")
        parser.add_argument("--limit", choices=QUOTA_NAMES, help="only those of this limit")
        parser.add_argument("--project", help="only of this project and its keys")

    def handle(self, *_: Any, **options: Any) -> None:
        tenant = tenant_named(options["tenant"])
        quotas = tenant.quotas.select_related("project", "api_key")
        if options["limit"] is not None:
            quotas = quotas.filter(limit=options["limit"])
        if options["project"] is not None:
            project = project_named(tenant, options["project"])
            quotas = quotas.filter(Q(project=project) | Q(api_key__project=project))
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
