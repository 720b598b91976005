"""manage.py list_api_keys Acme [--project web] [--state active]"""

from typing import Any, Final

from django.core.management.base import CommandParser

from tenants.management.look_up import project_named, tenant_named
from tenants.management.reporting import Fact, ReportingCommand
from tenants.models import ApiKey

_STATES: Final = ("active", "revoked")


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")
        parser.add_argument("--project", help="only of this project")
        parser.add_argument("--state", choices=_STATES, help="only those that are")

    def handle(self, *_: Any, **options: Any) -> None:
        tenant = tenant_named(options["tenant"])
        found = tenant.api_keys.select_related("project")
        if options["project"] is not None:
            found = found.filter(project=project_named(tenant, options["project"]))
        if options["state"] is not None:
            found = found.filter(revoked_at__isnull=options["state"] == "active")
        self.report_rows(options, [_facts(key) for key in found], of="API keys")


def _facts(key: ApiKey) -> dict[str, Fact]:
    return {
        "public_id": key.public_id,
        "name": key.name,
        "project": key.project.name,
        "scopes": " ".join(key.scopes),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "last_used_at": key.last_used_at,
        "revoked_at": key.revoked_at,
    }
