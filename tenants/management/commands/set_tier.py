"""manage.py set_tier Acme premium"""

from typing import Any

from django.core.management.base import CommandParser

from tenants.management.look_up import tenant_named, tier_named
from tenants.management.reporting import ReportingCommand


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")
        parser.add_argument("tier")

    def handle(self, *_: Any, **options: Any) -> None:
        tenant = tenant_named(options["tenant"])
        before = tenant.tier.name
        tenant.move_to(tier_named(options["tier"]))
        self.report(
            options,
            tenant_id=str(tenant.id),
            name=tenant.name,
            tier=tenant.tier.name,
            tier_before=before,
        )
