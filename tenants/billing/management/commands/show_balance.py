"""manage.py show_balance Acme --transactions 20"""

from typing import Any

from django.core.management.base import CommandParser

from tenants.billing.ledger.balances import balance_of
from tenants.billing.models import LedgerTransaction
from tenants.management.look_up import tenant_named
from tenants.management.reporting import ReportingCommand
from tenants.money import dollars


class Command(ReportingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant", help="id or name")
        parser.add_argument(
            "--transactions", type=int, metavar="N", help="show the newest N transactions instead"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        tenant = tenant_named(options["tenant"])
        if options["transactions"] is not None:
            newest = LedgerTransaction.objects.filter(tenant=tenant).order_by("-sequence")
            self.report_rows(
                options,
                [
                    {
                        "at": each.at,
                        "kind": each.kind,
                        "reference": each.reference,
                        "amount": dollars(each.size_nanos),
                        "memo": each.memo,
                    }
                    for each in newest.prefetch_related("entries")[: options["transactions"]]
                ],
                of="transactions",
            )
            return
        held = balance_of(tenant.id)
        self.report(
            options,
            tenant=tenant.name,
            billing_mode=tenant.billing_mode,
            credit=dollars(held.credit_nanos),
            promotional=dollars(held.promotional_nanos),
            sla=dollars(held.sla_nanos),
            prepaid=dollars(held.prepaid_nanos),
            owed=dollars(held.owed_nanos),
        )
