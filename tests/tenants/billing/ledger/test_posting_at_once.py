"""Who posts to the same tenants at the same moment, each on a connection of its own."""

import datetime
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

import pytest
from django.db import connections

from tenants.billing.ledger import credit
from tenants.billing.ledger.balances import balance_of
from tenants.billing.ledger.chain import ledger_problems
from tenants.billing.ledger.posting import UsageCharge, post_usage
from tenants.billing.models import LedgerHead, LedgerTransaction, TransactionKind
from tenants.isolation.scoping import operator_scope
from tenants.models import Project

pytestmark = pytest.mark.django_db(transaction=True)
ROUNDS = 20

_T = TypeVar("_T")


def at_once(works: Sequence[Callable[[], _T]]) -> list[_T]:
    """What each answers; all begin when the last is ready."""
    begin = Barrier(len(works))

    def run(work: Callable[[], _T]) -> _T:
        begin.wait(30)
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(works)) as pool:
        running = [pool.submit(run, work) for work in works]
        return [each.result(timeout=60) for each in running]


def use(projects: Sequence[Project], nanos: int, batch_id: uuid.UUID | None = None) -> None:
    """A batch of the collector with usage of these, in this order."""
    charges = [
        UsageCharge(
            tenant_id=project.tenant_id,
            model="m",
            day=datetime.date(2026, 11, 21),
            nanos=nanos,
            requests=1,
        )
        for project in projects
    ]
    with operator_scope("test, elsewhere"):
        post_usage(charges, batch_id=batch_id or uuid.uuid4())


def top_up(project: Project, nanos: int, reference: str) -> uuid.UUID:
    with operator_scope("test, elsewhere"):
        return credit.top_up(project.tenant_id, nanos, reference=reference).id


def promote(project: Project, nanos: int, reference: str) -> uuid.UUID:
    with operator_scope("test, elsewhere"):
        return credit.grant_promotion(project.tenant_id, nanos, reference=reference).id


def test_usage_and_credit_of_the_same_tenants_are_posted_one_after_the_other(
    acme: Project, globex: Project
) -> None:
    def collect(*projects: Project) -> None:
        for _ in range(ROUNDS):
            use(projects, nanos=7)

    def give(project: Project) -> None:
        for number in range(ROUNDS):
            top_up(project, 5, f"payment {number}")
            promote(project, 3, f"gift {number}")

    at_once(
        [
            lambda: collect(acme, globex),
            lambda: collect(globex, acme),
            lambda: give(acme),
            lambda: give(globex),
        ]
    )
    for project in (acme, globex):
        balance = balance_of(project.tenant_id)
        given, used = ROUNDS * (5 + 3), 2 * ROUNDS * 7
        # Which of them came first decides how much of it credit has paid.
        assert balance.credit_nanos - balance.owed_nanos == given - used
        head = LedgerHead.objects.get(tenant=project.tenant_id)
        assert (head.usage_nanos, head.sequence) == (used, 4 * ROUNDS)
        of_tenant = LedgerTransaction.objects.filter(tenant=project.tenant_id)
        assert of_tenant.filter(kind=TransactionKind.USAGE).count() == 2 * ROUNDS
    assert list(ledger_problems()) == []


def test_a_batch_that_several_post_at_once_is_posted_once(acme: Project, globex: Project) -> None:
    for batch_id in [uuid.uuid4() for _ in range(ROUNDS)]:
        orders = ([acme, globex], [globex, acme], [acme])
        at_once([lambda order=order: use(order, 7, batch_id) for order in orders])  # type: ignore[misc]  # noqa: B023
    for project in (acme, globex):
        assert balance_of(project.tenant_id).owed_nanos == 7 * ROUNDS
    assert list(ledger_problems()) == []


def test_a_payment_that_is_noted_twice_at_once_is_booked_once(acme: Project) -> None:
    for reference in map(str, range(ROUNDS)):
        first, second = at_once([lambda: top_up(acme, 5, reference)] * 2)  # noqa: B023
        assert first == second
    assert balance_of(acme.tenant_id).prepaid_nanos == 5 * ROUNDS
    assert list(ledger_problems()) == []
