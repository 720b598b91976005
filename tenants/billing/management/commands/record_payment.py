"""manage.py record_payment Acme 120.50 --reference bank-7781"""

import uuid
from typing import Any

from django.core.management.base import CommandParser

from tenants.billing.ledger import credit
from tenants.billing.management.booking import BookingCommand
from tenants.billing.models import LedgerTransaction


class Command(BookingCommand):
    help = (
        "Record a payment that belongs to no invoice: it settles what is owed, the rest"
        " becomes credit, and the next invoice is reduced by it. `invoices pay` is for "
        "invoices."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--on-account",
            action="store_true",
            help="confirm that it belongs to no open invoice",
        )

    def book(self, tenant_id: uuid.UUID, nanos: int, options: dict[str, Any]) -> LedgerTransaction:
        return credit.pay(
            tenant_id,
            nanos,
            reference=options["reference"],
            memo=options["memo"],
            is_on_account=options["on_account"],
        )
