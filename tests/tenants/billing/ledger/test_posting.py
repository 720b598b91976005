"""The ledger: what is posted, once, and what PostgreSQL refuses to anybody."""

import dataclasses
import datetime
import uuid
from collections.abc import Iterator

import psycopg
import pytest
from django.conf import settings
from django.db import connection, transaction
from psycopg.errors import CheckViolation, InsufficientPrivilege, InvalidParameterValue

from tenants.billing.ledger.posting import (
    Entry,
    NegativeCharge,
    Posting,
    UsageCharge,
    lock_balances,
    post,
    post_usage,
)
from tenants.billing.models import (
    AccountName,
    LedgerAccount,
    LedgerEntry,
    LedgerHead,
    LedgerTransaction,
    TransactionKind,
)
from tenants.isolation.scoping import tenant_scope
from tenants.models import Project
from tests.support.refusals import database_refuses

pytestmark = pytest.mark.django_db
MODEL = "penstock-demo"
DAY = datetime.date(2026, 11, 21)


def charge(project: Project, nanos: int, model: str = MODEL, requests: int = 1) -> UsageCharge:
    return UsageCharge(
        tenant_id=project.tenant_id, model=model, day=DAY, nanos=nanos, requests=requests
    )


def give(project: Project, account: AccountName, nanos: int) -> None:
    post(
        [
            Posting(
                tenant_id=project.tenant_id,
                kind=TransactionKind.TOP_UP,
                reference=f"gift:{uuid.uuid4()}",
                entries=[
                    Entry(account=AccountName.CASH, nanos=nanos),
                    Entry(account=account, nanos=-nanos),
                ],
            )
        ]
    )


def balances(project: Project) -> dict[str, int]:
    accounts = LedgerAccount.objects.filter(tenant_id=project.tenant_id)
    return {account.name: account.balance_nanos for account in accounts}


def entries(reference: str) -> list[tuple[str, int, str | None, int | None]]:
    found = LedgerEntry.objects.filter(transaction__reference=reference).order_by("position")
    return [(each.account, each.nanos, each.model, each.requests) for each in found]


def test_usage_that_nothing_has_paid_for_is_owed_by_model_and_day(acme: Project) -> None:
    batch = uuid.uuid4()
    post_usage([charge(acme, 30, requests=2), charge(acme, 12, "other")], batch_id=batch)
    assert entries(f"usage:{batch}") == [
        ("receivable", 42, None, None),
        ("revenue", -30, MODEL, 2),
        ("revenue", -12, "other", 1),
    ]
    assert balances(acme) == {"receivable": 42, "revenue": 42}
    assert LedgerHead.objects.get(tenant=acme.tenant).usage_nanos == 42


def test_credit_pays_first_what_is_given_before_what_was_paid_for(acme: Project) -> None:
    give(acme, AccountName.PREPAID_CREDIT, 10)
    give(acme, AccountName.SLA_CREDIT, 5)
    give(acme, AccountName.PROMOTIONAL_CREDIT, 3)
    post_usage([charge(acme, 6)], batch_id=uuid.uuid4())
    left = balances(acme)
    assert (left["promotional_credit"], left["sla_credit"], left["prepaid_credit"]) == (0, 2, 10)
    post_usage([charge(acme, 20)], batch_id=uuid.uuid4())
    left = balances(acme)
    assert (left["sla_credit"], left["prepaid_credit"], left["receivable"]) == (0, 0, 8)


def test_a_batch_is_posted_once_for_each_tenant(acme: Project, globex: Project) -> None:
    batch = uuid.uuid4()
    post_usage([charge(acme, 7)], batch_id=batch)
    post_usage([charge(acme, 7), charge(globex, 5), charge(globex, 0)], batch_id=batch)
    assert balances(acme)["receivable"] == 7
    assert balances(globex)["receivable"] == 5
    assert LedgerTransaction.objects.count() == 2


def test_what_costs_nothing_is_not_posted_and_less_is_refused(acme: Project) -> None:
    post_usage([charge(acme, 0)], batch_id=uuid.uuid4())
    assert not LedgerTransaction.objects.exists()
    with pytest.raises(NegativeCharge) as refused:
        post_usage([charge(acme, -1)], batch_id=uuid.uuid4())
    assert refused.value.charge == charge(acme, -1)


def test_a_tenant_reads_its_own_and_posts_nothing(acme: Project, globex: Project) -> None:
    post_usage([charge(acme, 7), charge(globex, 5)], batch_id=uuid.uuid4())
    with tenant_scope(acme.tenant_id):
        assert [each.balance_nanos for each in LedgerAccount.objects.all()] == [7, 7]
        assert LedgerEntry.objects.count() == 2
    with database_refuses(InsufficientPrivilege), tenant_scope(acme.tenant_id):
        lock_balances([acme.tenant_id])


def an_unbalanced_posting(project: Project) -> Posting:
    return Posting(
        tenant_id=project.tenant_id,
        kind=TransactionKind.ADJUSTMENT,
        reference="unbalanced",
        entries=[
            Entry(account=AccountName.RECEIVABLE, nanos=5),
            Entry(account=AccountName.REVENUE, nanos=-4),
        ],
    )


def test_what_does_not_balance_is_refused_with_the_difference(acme: Project) -> None:
    refused = database_refuses(CheckViolation, constraint="ledger_balances", difference_nanos=1)
    with refused, transaction.atomic():
        post([an_unbalanced_posting(acme)])
    assert not LedgerTransaction.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_transaction_without_entries_fails_the_commit(acme: Project) -> None:
    empty = dataclasses.replace(an_unbalanced_posting(acme), entries=[])
    with database_refuses(constraint="ledger_has_entries"), transaction.atomic():
        assert post([empty]) == [True]
    assert not LedgerTransaction.objects.exists()


def test_two_transactions_of_a_tenant_need_two_calls(acme: Project) -> None:
    posting = an_unbalanced_posting(acme)
    refused = database_refuses(InvalidParameterValue, constraint="ledger_post_one_of_tenant")
    with refused, transaction.atomic():
        post([posting, dataclasses.replace(posting, reference="another")])


@pytest.mark.parametrize("account", ["promotional_credit", "sla_credit", "prepaid_credit"])
def test_no_credit_goes_below_zero(acme: Project, account: str) -> None:
    name = AccountName(account)
    give(acme, name, 5)
    with database_refuses(constraint="ledger_account_not_negative"), transaction.atomic():
        give(acme, name, -6)
    assert balances(acme)[account] == 5


@pytest.fixture
def owner() -> Iterator[psycopg.Connection[tuple[object, ...]]]:
    with psycopg.connect(settings.ENV.owner_database_url) as owner:
        yield owner
        owner.rollback()


@pytest.mark.parametrize("table", ["billing_ledgertransaction", "billing_ledgerentry"])
@pytest.mark.parametrize("change", ["UPDATE {} SET tenant_id = tenant_id", "DELETE FROM {}"])
def test_not_even_the_owner_of_the_tables_changes_what_was_posted(
    owner: psycopg.Connection[tuple[object, ...]], table: str, change: str
) -> None:
    with database_refuses(InsufficientPrivilege, constraint="append_only"):
        owner.execute(change.format(table))
    owner.rollback()
    with database_refuses(InsufficientPrivilege, constraint="append_only"):
        owner.execute(f"TRUNCATE {table} CASCADE")


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE billing_ledgeraccount SET balance_nanos = 0",
        "INSERT INTO billing_ledgerentry (tenant_id) VALUES (gen_random_uuid())",
        "DELETE FROM billing_ledgertransaction",
        "UPDATE billing_ledgerhead SET usage_nanos = 0",
    ],
)
def test_an_operator_posts_by_the_functions_or_not_at_all(acme: Project, statement: str) -> None:
    with (
        database_refuses(InsufficientPrivilege),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
