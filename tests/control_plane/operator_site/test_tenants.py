"""Operators suspend, move and close tenants, and set up their projects."""

import re

import pytest
from django.test import Client
from django.urls import reverse
from redis import Redis

from gpu_workers.protocol import keys
from inference.models import (
    Pool,
    ServedModel,
)
from tenants.audit.log import seal_now
from tenants.errors import Conflict
from tenants.isolation.scoping import operator_scope
from tenants.models import (
    ApiKey,
    AuditEvent,
    Invitation,
    Project,
    Tenant,
    Tier,
)
from tests.control_plane.operator_site.records import refusals, wrong_fields

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("action", "is_suspended"), [("suspend", True), ("resume", False)])
def test_tenants_are_suspended_and_resumed_from_the_list(
    operator: Client, acme: Project, action: str, is_suspended: bool
) -> None:
    with operator_scope("test"):
        Tenant.objects.update(is_suspended=not is_suspended)
    listing = reverse("admin:tenants_tenant_changelist")
    chosen = {"action": action, "_selected_action": [str(acme.tenant_id)]}
    answer = operator.post(listing, chosen)
    if is_suspended:
        assert "1 tenant (Acme)" in answer.content.decode()
        with operator_scope("test"):
            assert not Tenant.objects.get().is_suspended
        operator.post(listing, chosen | {"sure": "yes"})
    with operator_scope("test"):
        assert Tenant.objects.get().is_suspended is is_suspended


def test_tenants_move_to_a_tier_that_is_asked_for_on_the_way(
    operator: Client, acme: Project
) -> None:
    listing = reverse("admin:tenants_tenant_changelist")
    chosen = {"action": "move_to_tier", "_selected_action": [str(acme.tenant_id)]}
    question = operator.post(listing, chosen).content.decode()
    assert "batch" in question and str(acme.tenant_id) in question
    with operator_scope("test"):
        batch = Tier.objects.get(name="batch")
    operator.post(listing, chosen | {"sure": "yes", "tier": str(batch.pk)})
    with operator_scope("test"):
        seal_now()
        assert Tenant.objects.get().tier == batch
        assert AuditEvent.objects.filter(verb="moved").count() == 1


@pytest.mark.parametrize(
    ("action", "form", "verb"),
    [
        ("suspend_one", {}, "suspended"),
        ("resume_one", {}, "resumed"),
        ("move_one", {"tier": "batch"}, "moved"),
        ("close_one", {"name": "Acme"}, "closed"),
    ],
)
def test_a_tenants_page_asks_before_it_does_something(
    operator: Client, acme: Project, action: str, form: dict[str, str], verb: str
) -> None:
    with operator_scope("test"):
        Tenant.objects.update(is_suspended=action == "resume_one")
        tiers = {tier.name: str(tier.pk) for tier in Tier.objects.all()}
    page = reverse(f"admin:tenants_tenant_{action}", args=[acme.tenant_id])
    form = {name: tiers.get(value, value) for name, value in form.items()}
    assert operator.get(page).status_code == 200
    operator.post(page, form)
    with operator_scope("test"):
        seal_now()
        assert not AuditEvent.objects.filter(verb=verb).exists()
    operator.post(page, form | {"sure": "yes"})
    with operator_scope("test"):
        seal_now()
        assert AuditEvent.objects.filter(verb=verb, record_kind="tenants.Tenant").exists()


def test_a_tenant_is_not_closed_under_another_name_and_never_deleted(
    operator: Client, acme: Project
) -> None:
    page = reverse("admin:tenants_tenant_close_one", args=[acme.tenant_id])
    operator.post(page, {"sure": "yes", "name": "Globex"})
    delete = reverse("admin:tenants_tenant_delete", args=[acme.tenant_id])
    assert operator.post(delete, {"post": "yes"}).status_code == 403
    with operator_scope("test"):
        assert Tenant.objects.get().closed_at is None


def test_what_keeps_a_tenant_from_being_closed_is_told(
    operator: Client, acme: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_tenant: Tenant) -> None:
        raise Conflict("Acme has a draft for this month already.")

    monkeypatch.setattr("tenants.admin.tenants.close_tenant", refuse)
    page = reverse("admin:tenants_tenant_close_one", args=[acme.tenant_id])
    answer = operator.post(page, {"sure": "yes", "name": "Acme"}, follow=True)
    (told,) = refusals(answer)
    assert told == "Acme has a draft for this month already."


def test_an_operator_names_the_model_that_answers_instead(operator: Client, acme: Project) -> None:
    with operator_scope("test"):
        pool = Pool.objects.create(name="demo")
        ServedModel.objects.create(name="small", pool=pool, context_tokens=1)
    page = reverse("admin:tenants_project_change", args=[acme.id])
    form = {"name": "default", "on_saturation": "smaller_model"}
    assert wrong_fields(operator, page, form | {"smaller_model": "nonesuch"}) == {"smaller_model"}
    operator.post(page, form | {"smaller_model": "small"})
    with operator_scope("test"):
        acme.refresh_from_db()
        assert (acme.on_saturation, acme.smaller_model) == ("smaller_model", "small")
    listing = operator.get(reverse("admin:tenants_project_changelist"))
    assert "small" in listing.content.decode()


def test_the_policy_snapshot_is_rebuilt_from_its_page(
    operator: Client, acme: Project, empty_redis: Redis
) -> None:
    page = reverse("admin:tenants_policyversion_rebuild")
    operator.get(page)
    assert empty_redis.get(keys.policy_version()) is None
    operator.post(page, {"sure": "yes"})
    assert empty_redis.get(keys.policy_version()) is not None


def test_a_tenant_is_made_with_all_that_it_needs_to_begin(operator: Client, acme: Project) -> None:
    address = reverse("admin:tenants_tenant_add")
    with operator_scope("test"):
        tier = Tier.objects.get(name="batch")
    form = {"name": "Initech", "tier": str(tier.pk), "billing_mode": "prepaid", "project": "web"}
    asked = form | {"owner": "bill@initech.example", "makes_key": "on"}
    answer = operator.post(address, asked)
    (key,) = re.findall(r"pk-[a-z0-9]{16}-[a-z2-7]{32}[0-9a-f]{6}", answer.content.decode())
    with operator_scope("test"):
        tenant = Tenant.objects.get(name="Initech")
        assert tenant.billing_mode == "prepaid"
        assert [each.name for each in tenant.projects.all()] == ["web"]
        record = ApiKey.objects.get(tenant=tenant)
        assert (record.scopes, record.last_four) == (["inference"], key[-4:])
        invitation = Invitation.objects.get(tenant=tenant)
        assert (invitation.email, invitation.role) == ("bill@initech.example", "owner")


def test_a_tenant_can_be_made_with_a_project_alone(operator: Client, acme: Project) -> None:
    address = reverse("admin:tenants_tenant_add")
    with operator_scope("test"):
        tier = Tier.objects.get(name="batch")
    form = {"name": "Initech", "tier": str(tier.pk), "billing_mode": "postpaid"}
    assert wrong_fields(operator, address, form) == {"project"}
    assert wrong_fields(operator, address, form | {"project": "x", "owner": "bill"}) == {"owner"}
    operator.post(address, form | {"project": "default"}, follow=True)
    with operator_scope("test"):
        tenant = Tenant.objects.get(name="Initech")
        assert [each.name for each in tenant.projects.all()] == ["default"]
        assert not ApiKey.objects.filter(tenant=tenant).exists()
        assert not Invitation.objects.filter(tenant=tenant).exists()
