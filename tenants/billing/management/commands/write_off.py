"""manage.py write_off Acme 12 --reference "case 3" --memo insolvent"""

import uuid
from typing import Any

from tenants.billing.ledger import credit
from tenants.billing.management.booking import BookingCommand
from tenants.billing.models import LedgerTransaction


class Command(BookingCommand):
    needs_memo = True

    def book(self, tenant_id: uuid.UUID, nanos: int, options: dict[str, Any]) -> LedgerTransaction:
        return credit.write_off(
            tenant_id, nanos, reference=options["reference"], memo=options["memo"]
        )
