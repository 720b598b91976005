"""Transactions as a tenant's people read them: those of a day and kind as one."""

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from redis import Redis

from tenants.billing.ledger.credit import top_up
from tenants.billing.ledger.posting import UsageCharge, post_usage
from tenants.billing.ledger.statements import DaySum, list_days, list_transactions
from tenants.billing.models import LedgerTransaction, TransactionKind
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import Project

pytestmark = pytest.mark.django_db(transaction=True)
Owner = psycopg.Connection[tuple[object, ...]]


def use(tenant_id: uuid.UUID, *nanos: int) -> None:
    with operator_scope("test"):
        for each in nanos:
            today = datetime.now(UTC).date()
            charge = UsageCharge(tenant_id=tenant_id, model="m", day=today, nanos=each, requests=2)
            post_usage([charge], batch_id=uuid.uuid4())


def told(rows: list[DaySum]) -> list[tuple[Any, ...]]:
    return [
        (each.kind.value, each.count, each.requests, each.credit_change_nanos,
         each.owed_change_nanos, each.only is not None)
        for each in rows
    ]  # fmt: skip


@pytest.fixture
def posted(policy_redis: Redis, acme: Project) -> Project:
    use(acme.tenant_id, 1)
    return acme


def test_those_of_a_day_and_kind_are_one_row(posted: Project, globex: Project) -> None:
    use(globex.tenant_id, 5, 7, 11)
    with operator_scope("test"):
        top_up(globex.tenant_id, 3, reference="a transfer")
    use(globex.tenant_id, 13)
    with tenant_scope(globex.tenant_id):
        page = list_days(limit=10)
    assert told(page.rows) == [
        ("usage", 4, 8, -3, 33, False),
        ("top_up", 1, 0, 3, 0, True),
    ]
    assert page.next_cursor is None


def test_days_are_pages_and_lead_to_their_transactions(
    posted: Project, owner: Owner, globex: Project
) -> None:
    for days in range(3):
        use(globex.tenant_id, 5, 7)
        owner.execute(
            "UPDATE billing_ledgertransaction SET at = at - %s WHERE tenant_id = %s",
            (timedelta(days=1 + days), globex.tenant_id),
        )
    with tenant_scope(globex.tenant_id):
        all_of_them = LedgerTransaction.objects.count()
        first = list_days(limit=2)
        second = list_days(limit=2, cursor=first.next_cursor)
        assert [len({each.day for each in page.rows}) for page in (first, second)] == [2, 1]
        assert second.next_cursor is None
        assert all(each.day > second.rows[0].day for each in first.rows)
        assert sum(each.count for each in (*first.rows, *second.rows)) == all_of_them == 6
        (only,) = second.rows
        single = list_transactions(kind=TransactionKind.USAGE, day=only.day, limit=10).rows
        assert sum(each.owed_change_nanos for each in single) == only.owed_change_nanos == 12


def test_nobody_sees_another_tenants_days(posted: Project, globex: Project) -> None:
    with tenant_scope(globex.tenant_id):
        assert list_days(limit=10).rows == []
