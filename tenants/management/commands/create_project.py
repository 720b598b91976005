"""manage.py create_project Acme web"""

from typing import Any

from django.core.management.base import CommandParser

from tenants.management.look_up import tenant_named
from tenants.management.reporting import ReportingCommand
from tenants.models import Project


class Command(ReportingCommand):
    help = "Create a project in a tenant."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant", help="name or id")
        parser.add_argument("name")

    def handle(self, *_: Any, **options: Any) -> None:
        tenant = tenant_named(options["tenant"])
        project = Project(tenant=tenant, name=options["name"].strip())
        project.full_clean()
        project.save()
        self.report(
            options,
            project_id=str(project.id),
            name=project.name,
            tenant_id=str(tenant.id),
            tenant=tenant.name,
        )
