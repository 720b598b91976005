"""Every list, search and record of the operators' site, with a record of each model."""

import re
import uuid
from collections.abc import Iterator

import pytest
from control_plane.operator_site.sidebar import linked_models
from django.apps import apps
from django.contrib import admin
from django.db.models import Model, UUIDField
from django.test import Client
from django.urls import reverse
from pytest_django import DjangoDbBlocker

from tenants.access.api_keys import issue_api_key
from tenants.access.default_tiers import ensure_default_tiers
from tenants.isolation.scoping import operator_scope
from tenants.models import (
    Project,
    Tenant,
    User,
)
from tests.control_plane.operator_site.records import make_acme, make_one_of_each
from tests.support.database import shared

pytestmark = pytest.mark.django_db
admin.autodiscover()
MODELS = [
    model
    for model in apps.get_models()
    if admin.site.is_registered(model) and model._meta.app_label != "auth"
]


@pytest.fixture(scope="module")
def shared_acme(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[Project]:
    def make() -> Project:
        acme = make_acme()
        make_one_of_each(acme)
        return acme

    with shared(make, django_db_blocker) as acme:
        yield acme


@pytest.fixture
def acme(shared_acme: Project, db: None) -> Project:
    return shared_acme


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_list_search_and_record_can_be_seen(operator: Client, model: type) -> None:
    options = model._meta  # type: ignore[attr-defined]
    listing = reverse(f"admin:{options.app_label}_{options.model_name}_changelist")
    assert operator.get(listing).status_code == 200
    assert operator.get(listing, {"q": "acme"}).status_code == 200
    with operator_scope("test"):
        records = list(model._default_manager.all())  # type: ignore[attr-defined]
    for record in records:
        page = reverse(f"admin:{options.app_label}_{options.model_name}_change", args=[record.pk])
        assert operator.get(page).status_code == 200


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_an_id_that_nothing_has_is_not_found_or_sent_to_the_list(
    operator: Client, model: type[Model]
) -> None:
    name = f"admin:{model._meta.app_label}_{model._meta.model_name}_change"
    is_uuid = isinstance(model._meta.pk, UUIDField)
    assert operator.get(reverse(name, args=["xyz"])).status_code in (
        (404,) if is_uuid else (302, 404)
    )
    assert operator.get(reverse(name, args=[uuid.UUID(int=1)])).status_code in (302, 404)


def test_no_page_offers_a_choice_of_all_tenants_keys_or_people(
    operator: Client, acme: Project
) -> None:
    with operator_scope("test"):
        ensure_default_tiers()
        for number in range(30):
            tenant = Tenant.objects.create(name=f"canary {number}", tier=acme.tenant.tier)
            project = Project.objects.create(tenant=tenant, name=f"canary {number}")
            issue_api_key(project, name=f"canary {number}")
            User.objects.create_user(f"canary{number}@example.org")
    for model in MODELS:
        options = model._meta
        name = f"admin:{options.app_label}_{options.model_name}"
        with operator_scope("test"):
            records = model._default_manager.order_by()[:1]
            pages = [reverse(f"{name}_change", args=[record.pk]) for record in records]
        pages += [reverse(f"{name}_add"), reverse(f"{name}_changelist")]
        for page in pages:
            answer = operator.get(page)
            if answer.status_code == 200:
                offered = re.findall(r"<option[^>]*>\s*canary", answer.content.decode())
                assert len(offered) < 3, page


def test_every_page_is_in_the_sidebar(operator: Client) -> None:
    assert linked_models() == {model._meta.label for model in MODELS}
    page = operator.get(reverse("admin:index")).content.decode()
    for model in MODELS:
        options = model._meta
        assert reverse(f"admin:{options.app_label}_{options.model_name}_changelist") in page


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize("name", ["usagerecord", "worker", "usagequarantine", "deadletter"])
def test_what_machines_wrote_is_not_for_people_to_change(operator: Client, name: str) -> None:
    assert operator.get(reverse(f"admin:inference_{name}_add")).status_code == 403
    model = apps.get_model(f"inference.{name}")
    with operator_scope("test"):
        record = model._default_manager.get()
    change = reverse(f"admin:inference_{name}_change", args=[record.pk])
    assert operator.post(change, {"pool": "mine"}).status_code == 403
    delete = reverse(f"admin:inference_{name}_delete", args=[record.pk])
    assert operator.post(delete, {"post": "yes"}).status_code == 403


def test_whole_numbers_of_a_list_have_their_digits_in_groups(operator: Client) -> None:
    ensure_default_tiers()
    answer = operator.get(reverse("admin:tenants_tier_changelist"), {"o": "-5"})
    shown = re.findall(r"field-requests_per_minute[^>]*>([^<]*)<", answer.content.decode())
    assert [text.strip() for text in shown] == ["60,000", "6,000", "6,000", "60"]
