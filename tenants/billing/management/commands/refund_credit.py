"""manage.py refund_credit Acme 50 --reference refund-7"""

import uuid
from typing import Any

from tenants.billing.ledger import credit
from tenants.billing.management.booking import BookingCommand
from tenants.billing.models import LedgerTransaction


class Command(BookingCommand):
    def book(self, tenant_id: uuid.UUID, nanos: int, options: dict[str, Any]) -> LedgerTransaction:
        return credit.refund(tenant_id, nanos, reference=options["reference"], memo=options["memo"])
