"""Acme pays beforehand, over a Redis with admission's functions."""

import uuid
from collections.abc import Iterator

import psycopg
import pytest
from django.conf import settings
from redis import Redis

from tenants.billing.ledger.chain import ledger_problems
from tenants.isolation.scoping import operator_scope
from tenants.models import BillingMode, Project


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


@pytest.fixture
def owner(posted: Project) -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    """Somebody who may write anything that was `posted`, and knows no secret of ours."""
    with psycopg.connect(settings.ENV.owner_database_url, autocommit=True) as owner:
        tables = ("transaction", "entry", "head", "account")
        for table in tables:
            owner.execute(f"ALTER TABLE billing_ledger{table} DISABLE TRIGGER USER")
        yield owner
        for table in tables:
            owner.execute(f"ALTER TABLE billing_ledger{table} ENABLE TRIGGER USER")
        for table in ("transaction", "entry"):
            owner.execute(f"ALTER TABLE billing_ledger{table} ENABLE ALWAYS TRIGGER append_only")
