"""manage.py adjust_balance Acme 5 --less --reference "ticket 9" --memo goodwill"""

import uuid
from typing import Any

from django.core.management.base import CommandParser

from tenants.billing.ledger import credit
from tenants.billing.management.booking import BookingCommand
from tenants.billing.models import LedgerTransaction


class Command(BookingCommand):
    needs_memo = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        direction = parser.add_mutually_exclusive_group(required=True)
        direction.add_argument("--more", action="store_false", dest="less")
        direction.add_argument("--less", action="store_true", dest="less")

    def book(self, tenant_id: uuid.UUID, nanos: int, options: dict[str, Any]) -> LedgerTransaction:
        return credit.adjust(
            tenant_id,
            -nanos if options["less"] else nanos,
            reference=options["reference"],
            memo=options["memo"],
        )
