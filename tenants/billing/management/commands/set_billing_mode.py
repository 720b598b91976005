"""manage.py set_billing_mode Acme prepaid"""

from typing import Any

from django.core.management.base import CommandParser

from tenants.management.look_up import tenant_named
from tenants.management.reporting import ReportingCommand
from tenants.models import BillingMode


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant")
        parser.add_argument("mode", choices=BillingMode.values)

    def handle(self, *_: Any, **options: Any) -> None:
        tenant = tenant_named(options["tenant"])
        tenant.set_billing_mode(BillingMode(options["mode"]))
        self.report(options, tenant=tenant.name, billing_mode=tenant.billing_mode)
