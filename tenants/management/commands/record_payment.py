"""manage.py record_payment Acme 120.50 --reference invoice-7"""

import uuid
from typing import Any

from tenants.billing import credit
from tenants.billing.models import LedgerTransaction
from tenants.management.booking import BookingCommand


class Command(BookingCommand):
    help = "Book that a tenant has paid what it owes; what is more becomes credit."

    def book(self, tenant_id: uuid.UUID, nanos: int, options: dict[str, Any]) -> LedgerTransaction:
        return credit.pay(tenant_id, nanos, reference=options["reference"], memo=options["memo"])
