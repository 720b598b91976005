"""The shape of the commands that book money: a tenant, an amount, and what it is booked under."""

import uuid
from typing import Any, ClassVar

from django.core.management.base import CommandParser

from tenants.billing.ledger.balances import balance_of
from tenants.billing.models import LedgerTransaction
from tenants.management.arguments import dollar_amount
from tenants.management.look_up import tenant_named
from tenants.management.reporting import ReportingCommand
from tenants.money import dollars


class BookingCommand(ReportingCommand):
    """Booked once for a tenant and a reference: the same again changes nothing."""

    needs_memo: ClassVar = False

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("tenant", help="id or name")
        parser.add_argument("amount", type=dollar_amount, help="in dollars")
        parser.add_argument(
            "--reference",
            required=True,
            help="idempotency reference, such as a payment's number; booked once",
        )
        parser.add_argument(
            "--memo",
            default="",
            required=self.needs_memo,
            help="stored permanently; do not include personal data",
        )

    def book(self, tenant_id: uuid.UUID, nanos: int, options: dict[str, Any]) -> LedgerTransaction:
        raise NotImplementedError

    def handle(self, *_: Any, **options: Any) -> None:
        tenant = tenant_named(options["tenant"])
        booked = self.book(tenant.id, int(options["amount"] * 10**9), options)
        held = balance_of(tenant.id)
        self.report(
            options,
            transaction_id=str(booked.id),
            tenant=tenant.name,
            kind=booked.kind,
            reference=booked.reference,
            credit=dollars(held.credit_nanos),
            owed=dollars(held.owed_nanos),
        )
