"""manage.py list_projects Acme [--search web]"""

from typing import Any

from django.core.management.base import CommandParser
from django.db.models import Count, Q

from tenants.management.look_up import tenant_named
from tenants.management.reporting import Fact, ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")
        parser.add_argument("--search", default="", help="only those whose name contains this")

    def handle(self, *_: Any, **options: Any) -> None:
        works = Count("api_keys", filter=Q(api_keys__revoked_at=None))
        projects = tenant_named(options["tenant"]).projects.annotate(keys=works)
        found = projects.filter(name__icontains=options["search"]).order_by("name")
        rows: list[dict[str, Fact]] = [
            {
                "name": project.name,
                "api_keys": project.keys,
                "created_at": project.created_at,
                "project_id": str(project.id),
            }
            for project in found
        ]
        self.report_rows(options, rows, of="projects")
