"""Caps of a tier in the operators' forms: they hold for operators too, who raise them there."""

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Membership, Project, Quota, Tier, User
from tests.control_plane.operator_site.records import wrong_fields

pytestmark = pytest.mark.django_db


def cap(most: int) -> None:
    with operator_scope("test"):
        Tier.objects.update(max_projects=most, max_api_keys=1, max_members=1, max_quotas=1)


def errors_of(answer: Any) -> str:
    return answer.content.decode() if answer.status_code == 200 else ""


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("project", "allows 1 projects"),
        ("apikey", "allows 1 API keys"),
        ("membership", "allows 1 members"),
        ("quota", "allows 1 quotas"),
    ],
)
def test_one_more_is_refused_beside_the_form(
    operator: Client, acme: Project, page: str, words: str
) -> None:
    people = [User.objects.create(email=f"{name}@acme.example") for name in ("alice", "ada")]
    tenant = str(acme.tenant_id)
    forms: dict[str, list[dict[str, Any]]] = {
        "project": [{"tenant": tenant, "name": name, "on_saturation": "wait"} for name in "ab"],
        "apikey": [{"project": str(acme.pk), "name": name, "scopes": "inference"} for name in "ab"],
        "membership": [
            {"tenant": tenant, "user": str(each.pk), "role": "owner"} for each in people
        ],
        "quota": [
            {"tenant": tenant, "limit": limit, "value": "5", "alert_percents": "50"}
            for limit in ("tokens_per_day", "tokens_per_month")
        ],
    }
    cap(2 if page == "project" else 1)
    address = reverse(f"admin:tenants_{page}_add")
    first, second = forms[page]
    assert wrong_fields(operator, address, first) == set()
    cap(1)
    assert words in errors_of(operator.post(address, second))
    with operator_scope("test"):
        assert Project.objects.count() == (2 if page == "project" else 1)
        assert ApiKey.objects.count() + Membership.objects.count() + Quota.objects.count() == (
            page != "project"
        )


def test_several_rows_of_a_tenants_page_are_counted_together(
    operator: Client, acme: Project
) -> None:
    cap(2)
    sets = ("projects", "memberships", "quotas")
    form = {f"{name}-{count}": "0" for name in sets for count in ("TOTAL_FORMS", "INITIAL_FORMS")}
    form |= {"name": "Acme", "tier": str(acme.tenant.tier_id)}
    form |= {
        "quotas-TOTAL_FORMS": "2",
        "quotas-0-limit": "tokens_per_day",
        "quotas-0-value": "5",
        "quotas-1-limit": "tokens_per_month",
        "quotas-1-value": "5",
    }
    address = reverse("admin:tenants_tenant_change", args=[acme.tenant_id])
    assert "allows 1 quotas" in errors_of(operator.post(address, form))
    with operator_scope("test"):
        assert Quota.objects.count() == 0
    assert operator.post(address, form | {"quotas-TOTAL_FORMS": "1"}).status_code == 302
    with operator_scope("test"):
        assert Quota.objects.count() == 1
