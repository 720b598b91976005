"""manage.py close_tenant Acme --yes"""

from dataclasses import asdict
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import CommandError, CommandParser

from tenants.management.confirmation import add_yes, confirm
from tenants.management.look_up import tenant_named
from tenants.management.reporting import ReportingCommand
from tenants.offboarding.closing import close_tenant


class Command(ReportingCommand):
    help = (
        "Close a tenant for good: its data is deleted; usage, ledger and audit chain stay, unnamed."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")
        add_yes(parser)

    def handle(self, *_: Any, **options: Any) -> None:
        tenant = tenant_named(options["tenant"])
        confirm(options, tenant.name, f"deletes the data of {tenant.name} for good")
        try:
            closed = close_tenant(tenant)
        except ValidationError as error:
            raise CommandError(" ".join(error.messages)) from error
        self.report(options, tenant_id=str(tenant.id), **asdict(closed))
