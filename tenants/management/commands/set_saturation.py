"""manage.py set_saturation Acme smaller_model --model org/small --project web"""

from typing import Any

from django.core.management.base import CommandParser

from gpu_workers.protocol.policy import OnSaturation
from tenants.access.projects import change_project
from tenants.management.look_up import project_named, tenant_named
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")
        parser.add_argument("on_saturation", choices=[choice.value for choice in OnSaturation])
        parser.add_argument(
            "--model", default="", help="the model that answers instead; only with smaller_model"
        )
        parser.add_argument("--project", help="project name; may be omitted if there is only one")

    def handle(self, *_: Any, **options: Any) -> None:
        tenant = tenant_named(options["tenant"])
        project = project_named(tenant, options["project"])
        change_project(
            project, on_saturation=options["on_saturation"], smaller_model=options["model"]
        )
        self.report(
            options,
            project_id=str(project.id),
            project=project.name,
            tenant=tenant.name,
            on_saturation=project.on_saturation,
            smaller_model=project.smaller_model or None,
        )
