"""Acme pays beforehand, over a Redis with admission's functions."""

import uuid
from collections.abc import Iterator

import pytest
from redis import Redis

from inference.redis_functions import ADMISSION, library_text
from tenants.billing.ledger.chain import ledger_problems
from tenants.isolation.scoping import operator_scope
from tenants.models import BillingMode, Project


@pytest.fixture
def redis(policy_redis: Redis) -> Redis:
    policy_redis.function_load(library_text(ADMISSION), replace=True)
    return policy_redis


@pytest.fixture
def tenant_id(redis: Redis, acme: Project) -> uuid.UUID:
    acme.tenant.set_billing_mode(BillingMode.PREPAID)
    return acme.tenant_id


@pytest.fixture
def ledger_is_whole(operators: None) -> Iterator[None]:
    """It is, once the test has ended."""
    yield
    with operator_scope("test"):
        assert list(ledger_problems()) == []
