"""manage.py grant_credit Acme 10 --reference welcome --expires 30d"""

import uuid
from typing import Any

from django.core.management.base import CommandParser

from tenants.billing.ledger import credit
from tenants.billing.management.booking import BookingCommand
from tenants.billing.models import LedgerTransaction
from tenants.management.arguments import moment


class Command(BookingCommand):
    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--expires", type=moment)

    def book(self, tenant_id: uuid.UUID, nanos: int, options: dict[str, Any]) -> LedgerTransaction:
        return credit.grant_promotion(
            tenant_id,
            nanos,
            reference=options["reference"],
            memo=options["memo"],
            expires_at=options["expires"],
        )
