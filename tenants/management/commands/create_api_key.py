"""manage.py create_api_key Acme --name "staging" --scope inference --expires 90d"""

from typing import Any

from django.core.management.base import CommandParser

from gpu_workers.protocol.policy import Scope
from tenants.access.api_keys import issue_api_key
from tenants.management.arguments import moment
from tenants.management.look_up import project_named, tenant_named
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")
        parser.add_argument(
            "--project", help="project name; may be omitted if the tenant has only one"
        )
        parser.add_argument("--name", default="", help="what the key is for")
        parser.add_argument(
            "--scope", action="append", metavar="SCOPE", help=f"{', '.join(Scope)}; may be repeated"
        )
        parser.add_argument("--expires", type=moment, help="30d, or a date; default: never")
        for name, what in (
            ("network", "CIDR block from which it may be used"),
            ("model", "served model that it may call"),
            ("adapter", "adapter that it may call"),
        ):
            parser.add_argument(f"--{name}", action="append", help=f"{what}; may be repeated")

    def handle(self, *_: Any, **options: Any) -> None:
        tenant = tenant_named(options["tenant"])
        project = project_named(tenant, options["project"])
        issued = issue_api_key(
            project,
            name=options["name"],
            scopes=options["scope"] or [Scope.INFERENCE.value],
            expires_at=options["expires"],
            allowed_networks=options["network"],
            allowed_models=options["model"],
            allowed_adapters=options["adapter"],
        )
        record = issued.record
        self.report(
            options,
            api_key_id=str(record.id),
            public_id=record.public_id,
            tenant_id=str(tenant.id),
            tenant=tenant.name,
            project=project.name,
            scopes=" ".join(record.scopes),
            expires_at=record.expires_at,
            key=issued.key,
        )
