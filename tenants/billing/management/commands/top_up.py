"""manage.py top_up Acme 250 --reference wire-2026-11-21"""

import uuid
from typing import Any

from tenants.billing.ledger import credit
from tenants.billing.management.booking import BookingCommand
from tenants.billing.models import LedgerTransaction


class Command(BookingCommand):
    def book(self, tenant_id: uuid.UUID, nanos: int, options: dict[str, Any]) -> LedgerTransaction:
        return credit.top_up(tenant_id, nanos, reference=options["reference"], memo=options["memo"])
