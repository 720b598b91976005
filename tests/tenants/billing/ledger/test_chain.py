"""fsck goes along the chains: whatever somebody with all rights has changed is found and named."""

import datetime
import uuid
from collections.abc import Callable

import psycopg
import pytest
from django.db import connection
from redis import Redis

from tenants.billing.ledger import credit
from tenants.billing.ledger.chain import ledger_problems
from tenants.billing.ledger.posting import UsageCharge, post_usage
from tenants.fsck import run_checks
from tenants.isolation.scoping import operator_scope
from tenants.models import Project

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def posted(acme: Project, globex: Project) -> Project:
    day = datetime.date(2026, 11, 21)
    for project in (acme, globex):
        with operator_scope("test"):
            credit.top_up(project.tenant_id, 50, reference="payment 1", memo="größer")
            for nanos in (30, 40):
                charge = UsageCharge(
                    tenant_id=project.tenant_id, model="m", day=day, nanos=nanos, requests=2
                )
                post_usage([charge], batch_id=uuid.uuid4())
    return acme


def problems() -> list[str]:
    with operator_scope("test"):
        return list(ledger_problems())


def test_a_ledger_as_it_was_posted_has_no_problem(posted: Project) -> None:
    assert problems() == []


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ("UPDATE billing_ledgertransaction SET memo = 'smaller' WHERE {of} AND sequence = 1",
         [("transaction 1",)]),
        ("UPDATE billing_ledgerentry SET requests = 3 WHERE {of} AND requests = 2",
         [("transaction 2",), ("transaction 3",)]),
        ("UPDATE billing_ledgerentry SET nanos = 31 WHERE {of} AND nanos = 30",
         [("transaction 2",), ("transaction 2", " 1 "), ("prepaid_credit", " 0 ")]),
        ("UPDATE billing_ledgeraccount SET balance_nanos = 90 WHERE {of} AND name = 'receivable'",
         [("receivable", " 90 ", " 20.")]),
        ("UPDATE billing_ledgerhead SET usage_nanos = 5 WHERE {of}", [("head",)]),
        ("DELETE FROM billing_ledgeraccount WHERE {of} AND name = 'cash'", [("cash",)]),
    ],
)  # fmt: skip
def test_what_was_changed_is_found(
    owner: psycopg.Connection[tuple[object, ...]],
    posted: Project,
    change: str,
    found: list[tuple[str, ...]],
) -> None:
    owner.execute(change.format(of=f"tenant_id = '{posted.tenant_id}'"))
    told = problems()
    assert len(told) == len(found), told
    for problem, facts in zip(told, found, strict=True):
        for fact in (str(posted.tenant_id), *facts):
            assert fact in problem


def test_what_was_taken_out_is_found(
    owner: psycopg.Connection[tuple[object, ...]], posted: Project
) -> None:
    of = "SELECT id FROM billing_ledgertransaction WHERE tenant_id = %s AND sequence = 2"
    [(second,)] = owner.execute(of, [posted.tenant_id]).fetchall()
    owner.execute("DELETE FROM billing_ledgerentry WHERE transaction_id = %s", [second])
    owner.execute("DELETE FROM billing_ledgertransaction WHERE id = %s", [second])
    told = problems()
    # The third follows the first.
    assert f"transaction 3 of tenant {posted.tenant_id}" in told[0] and " 1," in told[0]


def test_what_is_posted_while_fsck_looks_is_no_problem(
    policy_redis: Redis, posted: Project, elsewhere: Callable[[Callable[[], None]], None]
) -> None:
    charge = UsageCharge(
        tenant_id=posted.tenant_id, model="m", day=datetime.date(2026, 11, 22), nanos=7, requests=1
    )
    to_post = [charge]

    def post_in_between(execute: Callable[..., object], sql: str, *arguments: object) -> object:
        if to_post and '"billing_ledgertransaction"."sequence" >=' in sql:
            now = [to_post.pop()]
            elsewhere(lambda: post_usage(now, batch_id=uuid.uuid4()))
        return execute(sql, *arguments)

    with connection.execute_wrapper(post_in_between):
        findings = list(run_checks())
    assert not to_post
    assert [finding.problem for finding in findings if finding.check == "ledger"] == []
