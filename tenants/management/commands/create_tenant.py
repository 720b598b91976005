"""manage.py create_tenant "Acme" --tier premium"""

from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from tenants.access.default_tiers import ensure_default_tiers
from tenants.access.projects import add_tenant
from tenants.management.look_up import tier_named
from tenants.management.reporting import ReportingCommand
from tenants.models import Tenant, Tier


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("name")
        parser.add_argument("--tier", default="standard")
        parser.add_argument("--project", default="default", help="name of its first project")

    def handle(self, *_: Any, **options: Any) -> None:
        if not Tier.objects.exists():
            ensure_default_tiers()
        tenant = Tenant(name=options["name"].strip(), tier=tier_named(options["tier"]))
        if Tenant.objects.filter(name__iexact=tenant.name).exists():
            raise CommandError(f"A tenant named {tenant.name!r} exists already.")
        try:
            project = add_tenant(tenant, project=options["project"])
        except ValidationError as error:
            raise CommandError(f"{options['name']!r}: {' '.join(error.messages)}") from error
        self.report(
            options,
            tenant_id=str(tenant.id),
            name=tenant.name,
            slug=tenant.slug,
            tier=tenant.tier.name,
            project_id=str(project.id),
            project=project.name,
        )
