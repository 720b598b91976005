"""Who invoices Acme and Globex, and a Redis with admission's functions."""

import pytest
from redis import Redis

from inference.redis_functions import ADMISSION, library_text
from tenants.billing.invoicing.sla_credits import ensure_default_steps
from tenants.billing.models import Seller
from tenants.policy.writer import rebuild_policy


@pytest.fixture
def seller(operators: None) -> Seller:
    ensure_default_steps()
    return Seller.objects.create(
        name="Penstock Ltd",
        address="1 Mill Lane\nLeeds LS1 4AP\nUnited Kingdom",
        tax_id="GB 123 4567 89",
        email="billing@penstock.example",
        review_days=0,
        payment_instructions="Bank of Leeds, IBAN GB00 BOLE 0000 0000 0000 00\nQuote the number.",
    )


@pytest.fixture
def redis(policy_redis: Redis) -> Redis:
    policy_redis.function_load(library_text(ADMISSION), replace=True)
    return policy_redis


@pytest.fixture
def policy(redis: Redis) -> Redis:
    """With the snapshot of this moment in it: credit can be taken away."""
    rebuild_policy()
    return redis
