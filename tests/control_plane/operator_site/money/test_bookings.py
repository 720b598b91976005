"""Operators book a tenant's money on its page: a form, what was understood, then the ledger."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from redis import Redis

from inference.redis_functions import ADMISSION, library_text
from tenants.billing.ledger import credit
from tenants.billing.ledger.balances import Balance, balance_of
from tenants.billing.models import LedgerTransaction
from tenants.isolation.scoping import operator_scope
from tenants.models import BillingMode, Project, Tenant
from tenants.policy.writer import rebuild_policy
from tests.control_plane.operator_site.records import refusals, somebody_who_may

pytestmark = pytest.mark.django_db
FIVE: dict[str, Any] = {"sure": "yes", "amount": "$5", "reference": "wire 7", "memo": "why"}
UNDERSTOOD = {"understood": "yes"}
DOLLAR = 10**9


@pytest.fixture
def admission(acme: Project, redis: Redis) -> None:
    """Credit is taken away under a hold, which is placed in Redis."""
    redis.function_load(library_text(ADMISSION), replace=True)
    with operator_scope("test"):
        rebuild_policy()


def page(acme: Project, verb: str) -> str:
    return reverse("admin:tenants_tenant_money", args=[acme.tenant_id, verb])


def balance(acme: Project) -> Balance:
    with operator_scope("test"):
        return balance_of(acme.tenant_id)


def text_of(answer: Any) -> str:
    return str(answer.content.decode())


@pytest.mark.parametrize(
    ("verb", "more", "understood", "kind"),
    [
        ("top-up", {}, "$5.00 becomes prepaid credit of Acme", "top_up"),
        ("grant", {}, "Acme is given $5.00 of promotional credit that never expires", "promotion"),
        ("refund", {}, "$5.00 of Acme&#x27;s prepaid credit has been paid back", "refund"),
        ("adjust", {"direction": "less"}, "Acme is charged $5.00 less", "adjustment"),
        ("adjust", {"direction": "more"}, "Acme is charged $5.00 more", "adjustment"),
        ("pay", {}, "Acme has paid $5.00", "payment"),
        ("write-off", {}, "$5.00 of what Acme owes is given up", "write_off"),
    ],
)
@pytest.mark.usefixtures("admission")
def test_what_was_understood_is_shown_before_it_is_booked_once(
    operator: Client, acme: Project, verb: str, more: dict[str, str], understood: str, kind: str
) -> None:
    with operator_scope("test"):
        credit.top_up(acme.tenant_id, 20 * DOLLAR, reference="first")
        credit.adjust(acme.tenant_id, 9 * DOLLAR, reference="owed", memo="usage")
    before = balance(acme)
    assert b"Now: credit $20.00, owed $9.00." in operator.get(page(acme, verb)).content

    shown = text_of(operator.post(page(acme, verb), FIVE | more))
    assert understood in shown and "Reference: wire 7." in shown
    assert 'name="understood" value="yes"' in shown and 'name="amount" value="$5"' in shown
    assert balance(acme) == before

    for _ in range(2):
        answer = operator.post(page(acme, verb), FIVE | more | UNDERSTOOD)
        assert answer["Location"] == reverse("admin:tenants_tenant_change", args=[acme.tenant_id])
    with operator_scope("test"):
        booked = LedgerTransaction.objects.get(tenant=acme.tenant_id, reference="wire 7")
        assert (booked.kind, booked.size_nanos, booked.memo) == (kind, 5 * DOLLAR, "why")
    assert booked.actor_kind == "user"
    assert balance(acme) != before


def test_a_gift_ends_with_the_day_that_was_chosen(operator: Client, acme: Project) -> None:
    asked = FIVE | {"last_day": "2999-12-31"}
    shown = text_of(operator.post(page(acme, "grant"), asked))
    assert "until the end of 31 December 2999 (UTC)" in shown
    operator.post(page(acme, "grant"), asked | UNDERSTOOD)
    with operator_scope("test"):
        booked = LedgerTransaction.objects.get(reference="wire 7")
    assert booked.expires_at is not None
    assert booked.expires_at.isoformat() == "3000-01-01T00:00:00+00:00"
    past = text_of(operator.post(page(acme, "grant"), FIVE | {"last_day": "2020-01-01"}))
    assert "Choose today or a later day." in past
    never = text_of(operator.post(page(acme, "grant"), FIVE | {"last_day": "9999-12-31"}))
    assert "Choose an earlier day, or none." in never


@pytest.mark.parametrize(
    ("verb", "wrong", "says"),
    [
        ("top-up", {"amount": "lots"}, "Enter an amount in dollars"),
        ("top-up", {"amount": "0"}, "An amount is above zero, got $0.00."),
        ("top-up", {"reference": "invoice:1"}, "begins like one of the service&#x27;s own"),
        ("adjust", {"direction": "less", "memo": ""}, "This field is required."),
        ("refund", {}, "Of the credit only $0.00 is not spent or reserved"),
        ("write-off", {}, "$5.00 cannot be taken from it"),
    ],
)
@pytest.mark.usefixtures("admission")
def test_what_cannot_be_booked_is_told_on_the_form(
    operator: Client, acme: Project, verb: str, wrong: dict[str, str], says: str
) -> None:
    answer = operator.post(page(acme, verb), FIVE | wrong | UNDERSTOOD)
    assert answer.status_code == 200
    assert says in text_of(answer)
    with operator_scope("test"):
        assert not LedgerTransaction.objects.exists()


def test_another_amount_under_a_used_reference_is_refused(operator: Client, acme: Project) -> None:
    operator.post(page(acme, "top-up"), FIVE | UNDERSTOOD)
    answer = operator.post(page(acme, "top-up"), FIVE | {"amount": "6"} | UNDERSTOOD)
    assert "is that of another transaction" in text_of(answer)
    assert balance(acme).prepaid_nanos == 5 * DOLLAR


def test_a_billing_mode_is_set_from_the_tenants_page(operator: Client, acme: Project) -> None:
    its_page = reverse("admin:tenants_tenant_billing_mode", args=[acme.tenant_id])
    assert b"Prepaid: usage draws on credit; without credit requests are refused" in (
        operator.get(its_page).content
    )
    operator.post(its_page, {"sure": "yes", "mode": "prepaid"})
    with operator_scope("test"):
        assert Tenant.objects.get().billing_mode == BillingMode.PREPAID
    assert "Select a valid choice" in text_of(
        operator.post(its_page, {"sure": "yes", "mode": "never"})
    )


@pytest.mark.parametrize("may", [("view_tenant",), ("view_tenant", "view_ledgertransaction")])
def test_who_may_only_look_books_nothing(
    client: Client, acme: Project, may: tuple[str, ...]
) -> None:
    client.force_login(somebody_who_may(*may))
    assert client.post(page(acme, "top-up"), FIVE | UNDERSTOOD).status_code in (302, 403)
    mode = reverse("admin:tenants_tenant_billing_mode", args=[acme.tenant_id])
    assert client.post(mode, {"sure": "yes", "mode": "prepaid"}).status_code in (302, 403)
    with operator_scope("test"):
        assert not LedgerTransaction.objects.exists()
        assert Tenant.objects.get().billing_mode == BillingMode.POSTPAID
    its_own = reverse("admin:tenants_tenant_change", args=[acme.tenant_id])
    assert page(acme, "top-up").encode() not in client.get(its_own).content


def test_an_unknown_verb_or_tenant_is_not_found(operator: Client, acme: Project) -> None:
    assert operator.get(page(acme, "steal")).status_code == 404
    elsewhere = reverse("admin:tenants_tenant_money", args=[acme.pk, "top-up"])
    assert operator.get(elsewhere).status_code == 404


def test_a_closed_tenant_is_not_switched(operator: Client, acme: Project) -> None:
    with operator_scope("test"):
        Tenant.objects.update(closed_at="2026-01-02T00:00:00Z", name="closed")
    mode = reverse("admin:tenants_tenant_billing_mode", args=[acme.tenant_id])
    answer = operator.post(mode, {"sure": "yes", "mode": "prepaid"})
    assert "can no longer be changed" in text_of(answer)
    assert not refusals(answer)
