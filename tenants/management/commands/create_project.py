"""manage.py create_project Acme web"""

from typing import Any

from django.core.management.base import CommandParser

from tenants.access.projects import add_project
from tenants.management.look_up import tenant_named
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")
        parser.add_argument("name")

    def handle(self, *_: Any, **options: Any) -> None:
        tenant = tenant_named(options["tenant"])
        project = add_project(tenant, name=options["name"])
        self.report(
            options,
            project_id=str(project.id),
            name=project.name,
            tenant_id=str(tenant.id),
            tenant=tenant.name,
        )
