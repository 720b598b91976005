"""The operators' forms refuse what every other door refuses: rules of keys, projects and tiers."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from inference.models import Pool, ServedModel
from tenants.access.api_keys import issue_api_key
from tenants.access.default_tiers import ensure_default_tiers
from tenants.billing.models import Price
from tenants.billing.pricing import price_book
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Project, Tenant, Tier
from tests.control_plane.operator_site.records import wrong_fields

pytestmark = pytest.mark.django_db
PAST = {"expires_at_0": "2020-01-31", "expires_at_1": "12:00"}


@pytest.fixture
def acme() -> Project:
    with operator_scope("test"):
        ensure_default_tiers()
        for name in ("small", "other"):
            pool = Pool.objects.create(name=name)
            ServedModel.objects.create(name=name, pool=pool, context_tokens=2048)
        tenant = Tenant.objects.create(name="Acme", tier=Tier.objects.get(name="premium"))
        return Project.objects.create(tenant=tenant)


@pytest.fixture
def api_key(acme: Project) -> ApiKey:
    with operator_scope("test"):
        return issue_api_key(acme, name="web", allowed_models=["small"]).record


@pytest.mark.parametrize(
    ("field", "form"),
    [
        ("allowed_models", {"allowed_models": "small\r\nnonesuch"}),
        ("expires_at", PAST),
        ("allowed_networks", {"allowed_networks": "here"}),
        ("scopes", {"scopes": []}),
        ("project", {"project": ""}),
    ],
)
def test_a_key_that_breaks_a_rule_is_neither_made_nor_changed_into(
    operator: Client, acme: Project, api_key: ApiKey, field: str, form: dict[str, Any]
) -> None:
    good = {"name": "renamed", "scopes": "inference", "project": str(acme.id)}
    assert wrong_fields(operator, reverse("admin:tenants_apikey_add"), good | form) == {field}
    change = reverse("admin:tenants_apikey_change", args=[api_key.pk])
    if field != "project":
        assert wrong_fields(operator, change, good | form) == {field}
        with operator_scope("test"):
            assert ApiKey.objects.get().name == "web"


def test_a_keys_lists_are_kept_in_one_form(operator: Client, api_key: ApiKey) -> None:
    change = reverse("admin:tenants_apikey_change", args=[api_key.pk])
    form = {
        "name": "web",
        "scopes": "inference",
        "allowed_networks": "192.0.2.7\r\n192.0.2.7/32",
        "allowed_models": "other\r\nother",
    }
    assert wrong_fields(operator, change, form) == set()
    with operator_scope("test"):
        api_key.refresh_from_db()
    assert (api_key.allowed_networks, api_key.allowed_models) == (["192.0.2.7/32"], ["other"])


def test_what_was_good_when_it_was_set_does_not_stop_another_change(
    operator: Client, api_key: ApiKey
) -> None:
    expired_at = timezone.now().replace(microsecond=0) - timedelta(days=1)
    with operator_scope("test"):
        ServedModel.objects.filter(name="small").delete()
        ApiKey.objects.filter(pk=api_key.pk).update(expires_at=expired_at)
    form = {
        "name": "of the days of small",
        "scopes": "inference",
        "allowed_models": "small",
        "expires_at_0": f"{expired_at:%Y-%m-%d}",
        "expires_at_1": f"{expired_at:%H:%M:%S}",
    }
    change = reverse("admin:tenants_apikey_change", args=[api_key.pk])
    assert wrong_fields(operator, change, form) == set()
    with operator_scope("test"):
        assert ApiKey.objects.get().name == "of the days of small"


@pytest.mark.parametrize(
    ("choice", "model"), [("smaller_model", ""), ("smaller_model", "nonesuch"), ("refuse", "small")]
)
def test_a_project_names_no_smaller_model_that_cannot_answer(
    operator: Client, acme: Project, choice: str, model: str
) -> None:
    form = {"name": "web", "on_saturation": choice, "smaller_model": model}
    add, change = (
        reverse("admin:tenants_project_add"),
        reverse("admin:tenants_project_change", args=[acme.pk]),
    )
    assert wrong_fields(operator, change, form) == {"smaller_model"}
    form |= {"tenant": str(acme.tenant_id)}
    assert wrong_fields(operator, add, form) == {"smaller_model"}
    with operator_scope("test"):
        assert [each.on_saturation for each in Project.objects.all()] == ["wait"]


def test_a_project_names_a_smaller_model_that_can_answer(operator: Client, acme: Project) -> None:
    form = {"name": "default", "on_saturation": "smaller_model", "smaller_model": "small"}
    change = reverse("admin:tenants_project_change", args=[acme.pk])
    assert wrong_fields(operator, change, form) == set()
    with operator_scope("test"):
        ServedModel.objects.filter(name="small").delete()
    assert wrong_fields(operator, change, form | {"name": "renamed"}) == set()
    with operator_scope("test"):
        assert Project.objects.get().name == "renamed"


@pytest.mark.parametrize("model", ["", "nonesuch"])
def test_nor_does_a_project_on_its_tenants_page(
    operator: Client, acme: Project, model: str
) -> None:
    sets = ("projects", "memberships", "quotas")
    form = {f"{name}-{count}": "0" for name in sets for count in ("TOTAL_FORMS", "INITIAL_FORMS")}
    form |= {
        "name": "Acme",
        "tier": str(acme.tenant.tier_id),
        "projects-TOTAL_FORMS": "2",
        "projects-INITIAL_FORMS": "1",
        "projects-0-id": str(acme.pk),
        "projects-0-tenant": str(acme.tenant_id),
        "projects-0-name": "default",
        "projects-0-on_saturation": "smaller_model",
        "projects-0-smaller_model": model,
        "projects-1-tenant": str(acme.tenant_id),
        "projects-1-name": "web",
        "projects-1-on_saturation": "smaller_model",
        "projects-1-smaller_model": model,
    }
    answer = operator.post(reverse("admin:tenants_tenant_change", args=[acme.tenant_id]), form)
    assert answer.status_code == 200
    projects, *_ = answer.context["inline_admin_formsets"]
    assert [set(errors) for errors in projects.formset.errors] == [{"smaller_model"}] * 2
    with operator_scope("test"):
        assert [each.on_saturation for each in Project.objects.all()] == ["wait"]


def test_a_tier_that_a_price_names_keeps_its_name(operator: Client, acme: Project) -> None:
    with operator_scope("test"):
        tier = Tier.objects.get(name="batch")
        prices = dict.fromkeys(("prompt", "cached", "completion"), 1)
        named = {f"{name}_micros_per_million_tokens": nanos for name, nanos in prices.items()}
        price = price_book.enter(Price(model="small", tier="batch", **named))
    change = reverse("admin:tenants_tier_change", args=[tier.pk])
    fields = operator.get(change).context["adminform"].form.initial
    form = {name: "" if value is None else value for name, value in fields.items()}
    assert wrong_fields(operator, change, form | {"weight": 3}) == set()
    assert wrong_fields(operator, change, form | {"name": "cheap"}) == {"name"}
    with operator_scope("test"):
        price_book.end(price)
    assert wrong_fields(operator, change, form | {"name": "cheap"}) == set()
    with operator_scope("test"):
        assert Tier.objects.get(pk=tier.pk).name == "cheap"
