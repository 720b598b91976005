"""manage.py show_tenant Acme"""

from typing import Any

from django.core.management.base import CommandParser

from control_plane.management.commands.list_tenants import state_of
from tenants.billing.ledger.balances import balance_of
from tenants.management.look_up import tenant_named
from tenants.management.reporting import ReportingCommand
from tenants.money import dollars


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")

    def handle(self, *_: Any, **options: Any) -> None:
        tenant = tenant_named(options["tenant"])
        held = balance_of(tenant.id)
        self.report(
            options,
            name=tenant.name,
            slug=tenant.slug,
            tenant_id=str(tenant.id),
            state=state_of(tenant),
            tier=tenant.tier.name,
            billing_mode=tenant.billing_mode,
            credit=dollars(held.credit_nanos),
            owed=dollars(held.owed_nanos),
            members=tenant.memberships.count(),
            projects=tenant.projects.count(),
            api_keys=tenant.api_keys.filter(revoked_at=None).count(),
            quotas=tenant.quotas.count(),
            created_at=tenant.created_at,
        )
