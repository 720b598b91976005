"""Usage that waits to be posted: as exact as its records, seen by whoever reads a balance, and
posted before anything else moves."""

import datetime
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, timedelta

import pytest
from django.db import IntegrityError, connection, connections
from psycopg.errors import InsufficientPrivilege
from redis import Redis

from gpu_workers.protocol import keys
from tenants.alerts.balances import raise_balance_alerts, set_threshold
from tenants.billing.ledger import credit, waiting
from tenants.billing.ledger.balances import balance_of, charged_usage, credit_left, spendable
from tenants.billing.ledger.posting import NegativeCharge, UsageCharge, lock_balances
from tenants.billing.ledger.spend import reconcile_spend
from tenants.billing.ledger.statements import promotions_left
from tenants.billing.ledger.waiting import LONGEST_WAIT, charge_usage, post_due, waiting_problems
from tenants.billing.models import (
    MAX_NANOS,
    AccountName,
    LedgerEntry,
    LedgerTransaction,
    TransactionKind,
    WaitingCharge,
)
from tenants.errors import Conflict
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import PolicyChange, Project, Tenant
from tests.support.billing.prepaid import DAY, counted
from tests.support.refusals import database_refuses

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("policy", "operators_session", "ledger_is_whole"),
]


def use(tenant_id: uuid.UUID, nanos: int, model: str = "m") -> None:
    """As the collector takes usage in."""
    with operator_scope("test"):
        charge_usage(
            [UsageCharge(tenant_id=tenant_id, model=model, day=DAY, nanos=nanos, requests=1)]
        )


def a_minute_later() -> datetime.datetime:
    return datetime.datetime.now(UTC) + LONGEST_WAIT


def usage_posted(tenant_id: uuid.UUID) -> list[int]:
    posted = LedgerTransaction.objects.filter(tenant=tenant_id, kind=TransactionKind.USAGE)
    return [each.size_nanos for each in posted.order_by("sequence")]


def test_the_usage_of_a_minute_is_one_transaction_of_its_tenant(
    tenant_id: uuid.UUID, globex: Project
) -> None:
    for nanos in (1, 2, 3):
        use(tenant_id, nanos)
        use(tenant_id, 10 * nanos, model="n")
        use(globex.tenant_id, 100 * nanos)
    assert post_due() == 0
    assert usage_posted(tenant_id) == []
    assert post_due(a_minute_later()) == 2
    assert usage_posted(tenant_id) == [66]
    assert usage_posted(globex.tenant_id) == [600]
    lines = LedgerEntry.objects.filter(tenant=tenant_id, account=AccountName.REVENUE)
    assert {(each.model, each.day, each.nanos, each.requests) for each in lines} == {
        ("m", DAY, -6, 3),
        ("n", DAY, -60, 3),
    }
    assert not WaitingCharge.objects.exists()
    assert post_due(a_minute_later()) == 0


def test_a_balance_shows_what_waits_as_it_will_be_paid(tenant_id: uuid.UUID) -> None:
    credit.grant_promotion(tenant_id, 50, reference="gift")
    credit.top_up(tenant_id, 100, reference="payment")
    for nanos, seen in ((30, (20, 100, 0)), (60, (0, 60, 0)), (100, (0, 0, 40))):
        may_spend = spendable([tenant_id])
        use(tenant_id, nanos)
        for _ in range(2):
            held = balance_of(tenant_id)
            assert (held.promotional_nanos, held.prepaid_nanos, held.owed_nanos) == seen
            assert credit_left([tenant_id]) == {tenant_id: seen[0] + seen[1]}
            assert sum(each.left_nanos for each in promotions_left()) == seen[0]
            overdraft = seen[2]
            assert spendable([tenant_id])[tenant_id] == may_spend[tenant_id] + overdraft
            post_due(a_minute_later())


def test_credit_that_was_spent_a_moment_ago_is_not_paid_out(tenant_id: uuid.UUID) -> None:
    """Else a tenant would use, have all of its credit paid back within the minute, and owe."""
    credit.top_up(tenant_id, 100, reference="payment")
    use(tenant_id, 1)
    with pytest.raises(Conflict):
        credit.refund(tenant_id, 100, reference="refund")
    credit.refund(tenant_id, 99, reference="the rest")
    assert balance_of(tenant_id).owed_nanos == 0
    assert usage_posted(tenant_id) == [1]


def test_a_promotion_pays_for_what_was_used_before_it_ended(tenant_id: uuid.UUID) -> None:
    ends = datetime.datetime.now(UTC) + timedelta(hours=1)
    credit.grant_promotion(tenant_id, 50, reference="gift", expires_at=ends)
    credit.top_up(tenant_id, 100, reference="payment")
    use(tenant_id, 30)
    assert credit.expire_promotions(ends + credit.EXPIRY_GRACE) == 1
    held = balance_of(tenant_id)
    assert (held.promotional_nanos, held.prepaid_nanos) == (0, 100)


def test_a_promotion_that_came_later_pays_for_nothing_before_it(tenant_id: uuid.UUID) -> None:
    credit.top_up(tenant_id, 100, reference="payment")
    use(tenant_id, 30)
    credit.grant_promotion(tenant_id, 50, reference="gift")
    held = balance_of(tenant_id)
    assert (held.promotional_nanos, held.prepaid_nanos) == (50, 70)


def test_whoever_locks_a_ledger_sees_all_of_it(tenant_id: uuid.UUID, globex: Project) -> None:
    use(tenant_id, 30)
    use(globex.tenant_id, 7)
    with operator_scope("test"):
        held = lock_balances([tenant_id])[tenant_id]
    assert held[AccountName.RECEIVABLE] == 30
    assert usage_posted(globex.tenant_id) == []


def test_a_redis_that_has_lost_what_was_spent_learns_of_what_waits(
    redis: Redis, tenant_id: uuid.UUID
) -> None:
    credit.top_up(tenant_id, 100, reference="payment")
    use(tenant_id, 30)
    assert counted(redis, tenant_id)["settled"] == 30
    redis.delete(keys.tenant_balance(str(tenant_id)))
    reconcile_spend()
    assert counted(redis, tenant_id)["settled"] == 30 == charged_usage()[tenant_id]
    post_due(a_minute_later())
    assert charged_usage([tenant_id]) == {tenant_id: 30}


def test_what_goes_beyond_the_credit_is_told_to_admission_once(tenant_id: uuid.UUID) -> None:
    credit.top_up(tenant_id, 100, reference="payment")
    before = PolicyChange.objects.count()
    use(tenant_id, 100)
    assert PolicyChange.objects.count() == before
    use(tenant_id, 1)
    assert PolicyChange.objects.count() == before + 1
    assert spendable([tenant_id]) == {tenant_id: 101}


def test_a_low_balance_is_told_before_its_usage_is_posted(tenant_id: uuid.UUID) -> None:
    credit.top_up(tenant_id, 100, reference="payment")
    set_threshold(Tenant.objects.get(id=tenant_id), 50)
    assert raise_balance_alerts() == 0
    use(tenant_id, 60)
    assert raise_balance_alerts() == 1


def test_nobody_writes_what_waits_and_tenants_see_their_own(
    tenant_id: uuid.UUID, globex: Project
) -> None:
    use(tenant_id, 30)
    with tenant_scope(globex.tenant_id):
        assert not WaitingCharge.objects.exists()
    with tenant_scope(tenant_id):
        assert WaitingCharge.objects.get().nanos == 30
    for statement in (
        "DELETE FROM billing_waitingcharge",
        "UPDATE billing_waitingcharge SET nanos = 1",
        "SELECT * FROM penstock_ledger_take_waiting(ARRAY[gen_random_uuid()])",
        "SELECT penstock_ledger_charge('[]')",
    ):
        with database_refuses(InsufficientPrivilege), tenant_scope(tenant_id):
            connection.cursor().execute(statement)
    for statement in ("DELETE FROM billing_waitingcharge", "TRUNCATE billing_waitingcharge"):
        with database_refuses(InsufficientPrivilege), operator_scope("test"):
            connection.cursor().execute(statement)


def test_less_than_nothing_and_more_than_an_amount_are_refused(tenant_id: uuid.UUID) -> None:
    with pytest.raises(NegativeCharge):
        use(tenant_id, -1)
    use(tenant_id, 0)
    assert not WaitingCharge.objects.exists()
    with pytest.raises(IntegrityError):
        use(tenant_id, MAX_NANOS + 1)
    use(tenant_id, MAX_NANOS)
    with pytest.raises(IntegrityError):
        use(tenant_id, 1)


def test_what_one_tenant_cannot_be_posted_keeps_no_other_waiting(
    tenant_id: uuid.UUID, globex: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(tenant_id, 30)
    use(globex.tenant_id, 7)

    def refuse(tenant_ids: list[uuid.UUID]) -> object:
        if tenant_id in tenant_ids:
            raise IntegrityError
        return lock_balances(tenant_ids)

    with monkeypatch.context() as patch:
        patch.setattr(waiting, "lock_balances", refuse)
        assert post_due(a_minute_later()) == 1
    assert usage_posted(globex.tenant_id) == [7]
    assert list(waiting_problems()) == []
    hours_later = datetime.datetime.now(UTC) + timedelta(hours=1)
    (problem,) = waiting_problems(hours_later)
    assert str(tenant_id) in problem


def test_usage_that_comes_while_others_are_posted_is_neither_lost_nor_posted_twice(
    tenant_id: uuid.UUID, globex: Project
) -> None:
    rounds = 20

    def collect(*tenants: uuid.UUID) -> None:
        for _ in range(rounds):
            with operator_scope("test, elsewhere"):
                charge_usage(
                    [
                        UsageCharge(tenant_id=each, model=model, day=DAY, nanos=7, requests=1)
                        for each in tenants
                        for model in ("n", "m")
                    ]
                )

    def post_all() -> None:
        for _ in range(rounds):
            post_due(a_minute_later())

    def give() -> None:
        for number in range(rounds):
            with operator_scope("test, elsewhere"):
                credit.top_up(tenant_id, 5, reference=f"payment {number}")

    both = (tenant_id, globex.tenant_id)
    works = [lambda: collect(*both), lambda: collect(*both[::-1]), post_all, give]
    with ThreadPoolExecutor(len(works)) as pool:
        for running in [pool.submit(closing_connections, work) for work in works]:
            running.result(timeout=60)
    used = 2 * 2 * rounds * 7
    assert charged_usage() == dict.fromkeys(both, used)
    held = balance_of(tenant_id)
    assert held.credit_nanos - held.owed_nanos == 5 * rounds - used
    post_due(a_minute_later())
    for each in both:
        assert sum(usage_posted(each)) == used
    assert balance_of(globex.tenant_id).owed_nanos == used


def closing_connections(work: Callable[[], None]) -> None:
    try:
        work()
    finally:
        connections.close_all()
