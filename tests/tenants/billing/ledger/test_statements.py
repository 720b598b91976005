"""What is left of promotions, as a tenant's people read it."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest

from tenants.billing.ledger.credit import grant_promotion
from tenants.billing.ledger.posting import UsageCharge, post_usage
from tenants.billing.ledger.statements import promotions_left
from tenants.isolation.scoping import operator_scope, tenant_scope
from tests.support.projects import make_project

pytestmark = pytest.mark.django_db
DAY = timedelta(days=1)


@pytest.fixture
def tenant_id() -> uuid.UUID:
    with operator_scope("test"):
        make_project("Globex", "standard")
        return make_project("Acme", "premium").tenant_id


def left(tenant_id: uuid.UUID) -> list[tuple[int, bool]]:
    with tenant_scope(tenant_id):
        return [(each.left_nanos, each.expires_at is None) for each in promotions_left()]


def test_what_is_spent_is_of_the_promotion_that_ends_first(tenant_id: uuid.UUID) -> None:
    now = datetime.now(UTC)
    with operator_scope("test"):
        grant_promotion(tenant_id, 10, reference="ever")
        grant_promotion(tenant_id, 30, reference="soon", expires_at=now + DAY)
        grant_promotion(tenant_id, 20, reference="later", expires_at=now + 9 * DAY)
    assert left(tenant_id) == [(30, False), (20, False), (10, True)]
    with operator_scope("test"):
        charge = UsageCharge(tenant_id=tenant_id, model="m", day=now.date(), nanos=35, requests=1)
        post_usage([charge], batch_id=uuid.uuid4())
    assert left(tenant_id) == [(15, False), (10, True)]


def test_whoever_was_given_nothing_has_nothing_left(tenant_id: uuid.UUID) -> None:
    assert left(tenant_id) == []
