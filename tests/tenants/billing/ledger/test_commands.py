"""The operators' commands that book money, and what tenants read of it."""

from argparse import ArgumentError
from typing import Any

import pytest
from django.test import Client

from inference.redis_functions import ADMISSION, library_text
from tenants.isolation.scoping import operator_scope
from tenants.models import BillingMode, Membership, Project, Tenant, User
from tenants.permissions import Role
from tests.support.commands import attempt, refused, run
from tests.support.refusals import raises_conflict, raises_invalid

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _with_functions(policy_redis: Any, acme: Project) -> None:
    policy_redis.function_load(library_text(ADMISSION), replace=True)


def booked(command: str, amount: str, reference: str, *more: str) -> tuple[str, str]:
    """What the tenant has and owes then."""
    told = run(command, "Acme", amount, "--reference", reference, *more)
    return told["credit"], told["owed"]


def test_money_comes_and_goes_by_commands() -> None:
    assert booked("top_up", "250", "wire-1") == ("$250.00", "$0.00")
    assert booked("top_up", "250", "wire-1") == ("$250.00", "$0.00")
    assert booked("grant_credit", "10", "welcome", "--expires", "30d") == ("$260.00", "$0.00")
    assert booked("refund_credit", "50.5", "refund-1") == ("$209.50", "$0.00")
    more = ("--more", "--memo", "forgotten")
    assert booked("adjust_balance", "20", "ticket-1", *more) == ("$209.50", "$20.00")
    less = ("--less", "--memo", "goodwill")
    assert booked("adjust_balance", "5", "ticket-2", *less) == ("$209.50", "$15.00")
    assert booked("record_payment", "10", "invoice-1") == ("$209.50", "$5.00")
    assert booked("write_off", "5", "case-1", "--memo", "too small") == ("$209.50", "$0.00")
    shown = run("show_balance", "Acme")
    assert (shown["promotional"], shown["prepaid"], shown["owed"]) == ("$10.00", "$199.50", "$0.00")
    newest = run("show_balance", "Acme", "--transactions", "2")
    assert [each["kind"] for each in newest] == ["write_off", "payment"]


def test_what_cannot_be_booked_is_one_sentence() -> None:
    booked("top_up", "10", "wire-1")
    with raises_conflict("reference_taken", "reference", kind="top_up", nanos=10 * 10**9):
        attempt("top_up", "Acme", "11", "--reference", "wire-1")
    with raises_invalid("insufficient_balance", account="receivable", held_nanos=0):
        attempt("write_off", "Acme", "1", "--reference", "a", "--memo", "b")
    with raises_conflict("insufficient_credit", free_nanos=10 * 10**9):
        attempt("refund_credit", "Acme", "11", "--reference", "b")
    with raises_invalid("amount_not_positive"):
        attempt("top_up", "Acme", "0", "--reference", "c")
    with pytest.raises(ArgumentError) as caught:
        attempt("top_up", "Acme", "0.0000000001", "--reference", "d")
    assert caught.value.argument_name == "amount"
    assert "'Nobody'" in refused("top_up", "Nobody", "1", "--reference", "e")
    for command in ("top_up", "refund_credit"):
        with raises_invalid("amount_too_large", max_nanos=10**17):
            attempt(command, "Acme", "1e12", "--reference", "f")
    with raises_invalid("memo_too_long"):
        attempt("top_up", "Acme", "1", "--reference", "g", "--memo", "x" * 501)


def test_a_tenant_is_made_to_pay_beforehand() -> None:
    assert run("set_billing_mode", "Acme", "prepaid")["billing_mode"] == "prepaid"
    with operator_scope("test"):
        assert Tenant.objects.get(name="Acme").billing_mode == BillingMode.PREPAID


def test_who_pays_the_bills_reads_balance_and_transactions(client: Client, acme: Project) -> None:
    booked("top_up", "250", "wire-1", "--memo", "thank you")
    booked("grant_credit", "10", "welcome")
    alice = User.objects.create_user("alice@acme.example", "correct horse battery")
    with operator_scope("test"):
        Membership.objects.create(tenant=acme.tenant, user=alice, role=Role.BILLING)
    client.force_login(alice)
    address = f"/api/v1/tenants/{acme.tenant_id}"
    balance = client.get(f"{address}/balance").json()
    assert balance["credit_nanos"] == 260 * 10**9
    assert balance["billing_mode"] == "postpaid"
    first = client.get(f"{address}/transactions?limit=1").json()
    assert [each["reference"] for each in first["data"]] == ["welcome"]
    more = client.get(f"{address}/transactions?limit=1&cursor={first['next_cursor']}").json()
    [paid] = more["data"]
    assert (paid["kind"], paid["memo"], more["next_cursor"]) == ("top_up", "thank you", None)
    assert [(each["account"], each["debit_nanos"], each["credit_nanos"])
            for each in paid["entries"]] == [
        ("cash", 250 * 10**9, 0), ("prepaid_credit", 0, 250 * 10**9)
    ]  # fmt: skip
    assert client.get(f"{address}/transactions/{paid['id']}").json() == paid
