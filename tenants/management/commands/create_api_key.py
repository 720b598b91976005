"""manage.py create_api_key Acme --name "staging" """

from typing import Any

from django.core.management.base import CommandParser

from tenants.management.look_up import project_named, tenant_named
from tenants.management.reporting import ReportingCommand
from tenants.models import ApiKey


class Command(ReportingCommand):
    help = "Make an API key and print it; it cannot be shown again."

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant", help="name or id")
        parser.add_argument("--project", help="name; not needed where the tenant has only one")
        parser.add_argument("--name", default="", help="what the key is for")

    def handle(self, *_: Any, **options: Any) -> None:
        tenant = tenant_named(options["tenant"])
        project = project_named(tenant, options["project"])
        issued = ApiKey.objects.issue(project, name=options["name"][:200])
        self.report(
            options,
            api_key_id=str(issued.record.id),
            public_id=issued.record.public_id,
            tenant_id=str(tenant.id),
            tenant=tenant.name,
            project=project.name,
            key=issued.key,
        )
