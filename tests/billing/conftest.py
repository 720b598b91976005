"""Acme and Globex use the service; usage is recorded by the collector's own door."""

import pytest

from tenants.billing.models import Seller
from tenants.billing.sla_credits import ensure_default_steps
from tests.billing.using import Customer, make_customer


@pytest.fixture
def operators(request: pytest.FixtureRequest) -> None:
    """Records are made by operators, in a test that commits as in one that does not."""
    marker = request.node.get_closest_marker("django_db")
    commits = marker is not None and marker.kwargs.get("transaction")
    request.getfixturevalue("operators_session" if commits else "operators_eye")


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


@pytest.fixture
def acme(operators: None) -> Customer:
    return make_customer("Acme")


@pytest.fixture
def globex(operators: None) -> Customer:
    return make_customer("Globex")
