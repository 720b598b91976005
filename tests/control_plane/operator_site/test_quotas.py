"""Quotas and balance alerts in the operators' admin: money is written as people write it."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tenants.isolation.scoping import operator_scope
from tenants.models import Project, Quota
from tenants.webhooks.models import BalanceAlert
from tests.control_plane.operator_site.records import wrong_fields

pytestmark = pytest.mark.django_db
ADD = "admin:tenants_quota_add"


def form(acme: Project, **fields: str) -> dict[str, str]:
    return {"tenant": str(acme.tenant_id), "is_hard": "on", "alert_percents": "50"} | fields


def said(answer: Any) -> str:
    return " ".join(str(each) for each in answer.context["messages"])


@pytest.mark.parametrize(
    ("limit", "typed", "value", "shown"),
    [
        ("spend_per_month", "250", 250 * 10**9, "$250.00"),
        ("spend_per_day", "$0.05", 5 * 10**7, "$0.05"),
        ("tokens_per_day", "2M", 2_000_000, "2,000,000"),
        ("requests_per_minute", "1,500", 1_500, "1,500"),
    ],
)
def test_a_quota_is_typed_in_dollars_or_counts_and_says_what_was_understood(
    operator: Client, acme: Project, limit: str, typed: str, value: int, shown: str
) -> None:
    answer = operator.post(reverse(ADD), form(acme, limit=limit, value=typed), follow=True)
    with operator_scope("test"):
        quota = Quota.objects.get()
    assert quota.value == value
    assert shown in said(answer)
    change = reverse("admin:tenants_quota_change", args=[quota.pk])
    again = operator.get(change).context["adminform"].form["value"].value()
    operator.post(change, form(acme, limit=limit, value=again))
    with operator_scope("test"):
        assert Quota.objects.get().value == value


@pytest.mark.parametrize(
    ("limit", "typed"),
    [
        ("spend_per_month", "0.0000000001"),
        ("spend_per_month", "a lot"),
        ("spend_per_month", "-5"),
        ("spend_per_month", "0"),
        ("spend_per_month", "9" * 19),
        ("tokens_per_day", "$5"),
        ("tokens_per_day", "1.5"),
        ("tokens_per_day", ""),
    ],
)
def test_what_is_no_amount_is_refused_beside_the_field(
    operator: Client, acme: Project, limit: str, typed: str
) -> None:
    wrong = form(acme, limit=limit, value=typed)
    assert wrong_fields(operator, reverse(ADD), wrong) == {"value"}
    with operator_scope("test"):
        assert not Quota.objects.exists()


def test_a_limit_that_is_none_is_said_and_nothing_breaks(operator: Client, acme: Project) -> None:
    wrong = form(acme, limit="spend_per_year", value="5")
    assert wrong_fields(operator, reverse(ADD), wrong) == {"limit"}


def test_a_tenants_page_takes_spend_in_dollars_too(operator: Client, acme: Project) -> None:
    sets = ("projects", "memberships", "quotas")
    page = {f"{name}-{count}": "0" for name in sets for count in ("TOTAL_FORMS", "INITIAL_FORMS")}
    page |= {"name": "Acme", "tier": str(acme.tenant.tier_id), "quotas-TOTAL_FORMS": "1"}
    page |= {"quotas-0-limit": "spend_per_month", "quotas-0-value": "250", "quotas-0-is_hard": "on"}
    address = reverse("admin:tenants_tenant_change", args=[acme.tenant_id])
    assert operator.post(address, page).status_code == 302
    with operator_scope("test"):
        assert Quota.objects.get().value == 250 * 10**9


def test_a_balance_alert_is_typed_and_listed_in_dollars(operator: Client, acme: Project) -> None:
    with operator_scope("test"):
        BalanceAlert.objects.create(tenant=acme.tenant, threshold_nanos=5 * 10**9)
    change = reverse("admin:webhooks_balancealert_change", args=[acme.tenant_id])
    listing = reverse("admin:webhooks_balancealert_changelist")
    field = operator.get(change).context["adminform"].form["threshold_nanos"]
    assert field.value() == "$5"
    assert wrong_fields(operator, change, {"threshold_nanos": "five"}) == {"threshold_nanos"}
    for typed, nanos, listed in (("2.50", 2_500_000_000, "$2.50"), ("", None, "no alert")):
        assert operator.post(change, {"threshold_nanos": typed}).status_code == 302
        with operator_scope("test"):
            assert BalanceAlert.objects.get().threshold_nanos == nanos
        assert listed in operator.get(listing).content.decode()
