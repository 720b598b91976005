"""A tenant's slug: made from its name, of one tenant alone, and the same for ever."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import transaction

from inference.models import Pool, ServedModel
from tenants.access.default_tiers import ensure_default_tiers
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import AuditEvent, Tenant, Tier
from tenants.offboarding.closing import close_tenant
from tests.support.refusals import database_refuses

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("operators_session")]


@pytest.fixture(autouse=True)
def _empty_redis(policy_redis: Any) -> None:
    """Every commit of these tests is written to it."""


def a_tenant(name: str) -> Tenant:
    ensure_default_tiers()
    return Tenant.objects.create(name=name, tier=Tier.objects.get(name="premium"))


def a_model(name: str) -> ServedModel:
    pool, _ = Pool.objects.get_or_create(name="pool-a")
    return ServedModel.objects.create(name=name, pool=pool, context_tokens=2048)


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Acme", "acme"),
        ("  Müller & Söhne GmbH ", "muller-sohne-gmbh"),
        ("Ａｃｍｅ", "acme"),  # full width
        ("../../etc", "etc"),
        ("acme/x@3", "acme-x-3"),
        ("日本", "tenant"),
        ("---", "tenant"),
        ("x" * 200, "x" * 40),
    ],
)
def test_a_slug_is_made_from_the_name(name: str, slug: str) -> None:
    tenant = a_tenant(name)
    assert tenant.slug == slug
    tenant.refresh_from_db()
    assert tenant.slug == slug


def test_names_that_look_alike_get_slugs_of_their_own() -> None:
    names = [
        "Acme",
        "acme!",
        "Ａcme",
        "acme.",
        "acme,",
        "acme;",
        "acme:",
        "acme?",
        "acme%",
        "acme&",
    ]
    slugs = [a_tenant(name).slug for name in names]
    assert slugs[:3] == ["acme", "acme-2", "acme-3"]
    assert len(set(slugs)) == len(names)


def test_tenants_that_come_in_bulk_have_slugs() -> None:
    ensure_default_tiers()
    tier = Tier.objects.get(name="premium")
    made = Tenant.objects.bulk_create(Tenant(name=f"Load {n}", tier=tier) for n in range(3))
    assert [tenant.slug for tenant in made] == ["load-0", "load-1", "load-2"]


def test_a_slug_stays_through_a_new_name_and_a_closing() -> None:
    tenant = a_tenant("Acme")
    tenant.rename("Globex")
    tenant.refresh_from_db()
    assert tenant.slug == "acme"
    assert a_tenant("Acme").slug == "acme-2"
    with operator_scope("test"):
        close_tenant(Tenant.objects.get(pk=tenant.pk))
    tenant.refresh_from_db()
    assert tenant.slug == "acme"


def test_nobody_changes_a_slug() -> None:
    tenant = a_tenant("Acme")
    with database_refuses(constraint="tenant_slug_never_changes"):
        Tenant.objects.filter(pk=tenant.pk).update(slug="globex")
    tenant.slug = "globex"
    with database_refuses(constraint="tenant_slug_never_changes"):
        tenant.save()


def test_a_slug_that_another_has_is_refused() -> None:
    a_tenant("Acme")
    tier = Tier.objects.get(name="premium")
    with database_refuses(constraint="tenant_slug_once"):
        Tenant.objects.create(name="Other", slug="acme", tier=tier)


def test_a_new_tenant_does_not_get_a_slug_that_a_served_model_begins_with() -> None:
    a_model("Acme/large-7b")
    a_model("globex-7b")
    assert a_tenant("Acme").slug == "acme-2"
    assert a_tenant("globex-7b").slug == "globex-7b"


@pytest.mark.parametrize("name", ["acme/large", "ACME/large", "Acme/a/b"])
def test_no_served_model_begins_with_a_tenants_slug(name: str) -> None:
    a_tenant("Acme")
    with database_refuses(constraint="served_model_name_of_nobody"):
        a_model(name)
    model = a_model("acme-large")
    model.name = name
    with database_refuses(constraint="served_model_name_of_nobody"):
        model.save()


def test_of_a_tenant_and_a_model_that_come_together_one_sees_the_other(
    elsewhere: Callable[[Callable[[], Any]], Any],
) -> None:
    ensure_default_tiers()
    tier = Tier.objects.get(name="premium")
    started: list[Any] = []

    def make_tenant() -> str:
        with transaction.atomic():
            return Tenant.objects.create(name="Acme", tier=tier).slug

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            a_model("acme/large")
            started.append(pool.submit(elsewhere, make_tenant))
        assert started[0].result(timeout=30) == "acme-2"


def test_the_log_tells_the_slug_and_the_tenant_reads_it() -> None:
    tenant = a_tenant("Acme")
    event = AuditEvent.objects.filter(tenant=tenant, record_kind="tenants.Tenant").first()
    assert event is not None
    assert '"slug"' in event.changes
    with tenant_scope(tenant.id):
        assert Tenant.objects.get().slug == "acme"
