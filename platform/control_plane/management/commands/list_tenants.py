"""manage.py list_tenants [--state open|suspended|closed] [--tier premium] [--search acme]"""

from typing import Any, Final

from django.core.management.base import CommandParser
from django.db.models import Q

from tenants.management.look_up import tier_named
from tenants.management.reporting import Fact, ReportingCommand
from tenants.models import Tenant

_STATES: Final = {
    "open": Q(closed_at=None, is_suspended=False),
    "suspended": Q(closed_at=None, is_suspended=True),
    "closed": Q(closed_at__isnull=False),
}


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--state", choices=list(_STATES), help="default: open and suspended")
        parser.add_argument("--tier", help="only those in this tier")
        parser.add_argument("--search", default="", help="only those whose name contains this")

    def handle(self, *_: Any, **options: Any) -> None:
        found = Tenant.objects.filter(
            _STATES.get(options["state"], Q(closed_at=None)), name__icontains=options["search"]
        )
        if options["tier"] is not None:
            found = found.filter(tier=tier_named(options["tier"]))
        rows: list[dict[str, Fact]] = [
            {
                "name": tenant.name,
                "slug": tenant.slug,
                "tier": tenant.tier.name,
                "billing_mode": tenant.billing_mode,
                "state": state_of(tenant),
                "created_at": tenant.created_at,
                "tenant_id": str(tenant.id),
            }
            for tenant in found.select_related("tier").order_by("name", "id")
        ]
        self.report_rows(options, rows, of="tenants")


def state_of(tenant: Tenant) -> str:
    """Return open, suspended or closed."""
    if tenant.is_closed:
        return "closed"
    return "suspended" if tenant.is_suspended else "open"
