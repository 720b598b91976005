"""manage.py resume_tenant Acme"""

from typing import Any

from django.core.management.base import CommandParser

from tenants.management.look_up import tenant_named
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")

    def handle(self, *_: Any, **options: Any) -> None:
        tenant = tenant_named(options["tenant"])
        tenant.resume()
        self.report(options, tenant_id=str(tenant.id), name=tenant.name, is_suspended=False)
