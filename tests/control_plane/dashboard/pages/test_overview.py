"""The overview: first steps of a new organisation, then what matters now."""

from dataclasses import dataclass

import pytest
from django.test import Client

from inference.models.rollup import DailyUsage
from inference.usage.rollups import Use, add_to_rollups
from tenants.access.api_keys import issue_api_key
from tenants.access.projects import add_project
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Membership, Project, Tenant, Tier
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.two_tenants import TwoTenants

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("functions_loaded")]
HTMX = {"HX-Request": "true"}


@dataclass(frozen=True, kw_only=True)
class NewTenant:
    tenant: Tenant
    owner: Client
    address: str


@pytest.fixture
def initech(houses: TwoTenants) -> NewTenant:
    """A tenant without anything, whose owner is signed in."""
    owner = houses.acme.people["owner"]
    with operator_scope("test"):
        tenant = Tenant.objects.create(name="Initech", tier=Tier.objects.get(name="free"))
        Membership.objects.create(tenant=tenant, user=owner, role="owner")
    client = Client()
    client.force_login(owner)
    return NewTenant(tenant=tenant, owner=client, address=f"/t/{tenant.id}/")


def answered(key: ApiKey, project: Project, outcome: str) -> None:
    with operator_scope("test"):
        use = Use(
            tenant_id=str(key.tenant_id),
            project_id=str(project.id),
            api_key_id=str(key.id),
            model="m",
            adapter="",
            tier="free",
            arrived_ms=1_790_000_000_000,
            outcome=outcome,
            prompt_tokens=3,
            cached_tokens=0,
            completion_tokens=4,
            cost_nanos=1,
            ttft_ms=20,
            duration_ms=400,
        )
        add_to_rollups([use])


def test_a_new_organisation_is_led_from_a_project_to_the_first_answer(initech: NewTenant) -> None:
    steps = initech.owner.get(initech.address).context["steps"]
    assert (steps["project"], steps["key"]) == (None, None)
    with operator_scope("test"):
        project = add_project(initech.tenant, name="web")
    steps = initech.owner.get(initech.address).context["steps"]
    assert (steps["project"], steps["key"]) == (project, None)
    with operator_scope("test"):
        key = issue_api_key(project, name="ci").record
    answer = initech.owner.get(initech.address)
    assert answer.context["steps"]["key"] == key
    html = answer.content.decode()
    assert "$PENSTOCK_API_KEY" in html and "public-model" in html
    # Until an answer is there the page asks again, and nothing is drawn anew.
    assert 'hx-trigger="every' in html
    assert initech.owner.get(initech.address, headers=HTMX).status_code == 204
    answered(key, project, "failed")
    assert initech.owner.get(initech.address, headers=HTMX).status_code == 204
    answered(key, project, "completed")
    arrived = initech.owner.get(initech.address, headers=HTMX)
    assert arrived.status_code == 200 and arrived["Cache-Control"] == "no-store"
    html = arrived.content.decode()
    assert "hx-trigger" not in html and "<html" not in html and initech.address in html
    assert initech.owner.get(initech.address).context["steps"] is None


def test_the_page_of_a_new_key_waits_for_the_first_answer_too(initech: NewTenant) -> None:
    with operator_scope("test"):
        project = add_project(initech.tenant, name="web")
    form = {
        "project": str(project.id),
        "scopes": "inference",
        "expires": "never",
        "models_of": "any",
    }
    html = initech.owner.post(f"{initech.address}keys/new", form).content.decode()
    assert f'hx-get="{initech.address}"' in html and "public-model" in html


def test_somebody_who_may_make_nothing_is_told_who_may(
    initech: NewTenant, houses: TwoTenants
) -> None:
    viewer = houses.acme.people["viewer"]
    with operator_scope("test"):
        Membership.objects.create(tenant=initech.tenant, user=viewer, role="viewer")
    client = Client()
    client.force_login(viewer)
    html = client.get(initech.address).content.decode()
    assert "projects/new" not in html and "who-may" in html


def test_one_that_has_had_answers_sees_what_it_used_and_its_limits(
    signed_in: SignIn, acme_address: str, houses: TwoTenants
) -> None:
    answer = signed_in("viewer").get(acme_address)
    now = answer.context["now"]
    assert answer.context["steps"] is None
    with operator_scope("test"):
        assert DailyUsage.objects.filter(tenant=houses.globex.tenant).exists()
    assert set(now["usage"]) >= {"requests", "tokens", "cost_nanos"}
    assert {row.limit.value for row in now["limits"]} >= {"requests_per_minute", "spend_per_month"}


def test_the_credit_is_told_to_those_who_may_know(
    signed_in: SignIn, acme_address: str, houses: TwoTenants
) -> None:
    with operator_scope("test"):
        Tenant.objects.filter(id=houses.acme.tenant.id).update(billing_mode="prepaid")
    for role, knows in (("owner", True), ("billing", True), ("developer", False)):
        credit = signed_in(role).get(acme_address).context["now"]["credit_nanos"]
        assert (credit is not None) is knows, role
