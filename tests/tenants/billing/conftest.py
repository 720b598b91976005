"""Who invoices Acme and Globex."""

import pytest

from tenants.billing.invoicing.sla_credits import ensure_default_steps
from tenants.billing.models import Seller


@pytest.fixture
def seller(operators: None) -> Seller:
    ensure_default_steps()
    return Seller.objects.create(
        name="Penstock Ltd",
        address="1 Mill Lane\nLeeds LS1 4AP\nUnited Kingdom",
        tax_id="GB 123 4567 89",
        email="billing@penstock.example",
        payment_instructions="Bank of Leeds, IBAN GB00 BOLE 0000 0000 0000 00\nQuote the number.",
    )
