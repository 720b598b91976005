"""The overview: first steps of a new organisation, then what matters now."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from control_plane.dashboard.pages.overview.month import _percent
from django.test import Client

from inference.models.rollup import DailyUsage
from inference.usage.rollups import add_to_rollups
from tenants.access.api_keys import issue_api_key
from tenants.access.projects import add_project
from tenants.billing.invoicing.usage_source import Measured
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Membership, Tenant, Tier
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.figures.rollup_uses import use_of
from tests.support.refused.on_record import of_key, refuse
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


def answered(key: ApiKey, outcome: str) -> None:
    with operator_scope("test"):
        add_to_rollups([use_of(key, outcome=outcome)])


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
    answered(key, "failed")
    assert initech.owner.get(initech.address, headers=HTMX).status_code == 204
    answered(key, "completed")
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
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    with operator_scope("test"):
        add_to_rollups(
            [
                use_of(houses.acme.key, outcome=end, arrived_ms=now_ms, cost_nanos=2 * 10**9)
                for end in ("completed", "failed")
            ]
        )
    answer = signed_in("viewer").get(acme_address)
    now = answer.context["now"]
    assert answer.context["steps"] is None
    with operator_scope("test"):
        assert DailyUsage.objects.filter(tenant=houses.globex.tenant).exists()
    usage = now["month"].data.usage
    assert (usage.requests, usage.errors, usage.cost_nanos) == (2, 1, 4 * 10**9)
    assert {row.limit.value for row in now["limits"]} >= {"requests_per_minute", "spend_per_month"}
    html = answer.content.decode()
    assert "$4.00" in html and "The budget of $1.00 is spent." in html
    ttft = usage.latencies_ms["ttft"]["p50"]
    assert ttft == pytest.approx(20, rel=0.05)
    assert f"{ttft:g} ms" in html and "First token" in html


def test_what_was_kept_is_shown_of_each_model_rounded_down(
    signed_in: SignIn, acme_address: str, houses: TwoTenants
) -> None:
    now = datetime.now(UTC)
    with operator_scope("test"):
        failed = use_of(
            houses.acme.key,
            outcome="failed",
            arrived_ms=int(now.timestamp() * 1000),
            owed=True,
        )
        add_to_rollups([failed] * 100)
    answer = signed_in("viewer").get(acme_address)
    (uptime,) = (
        each for each in answer.context["now"]["month"].data.promises if each.name == "Uptime"
    )
    measured = uptime.kept.measured
    # An hour, or what is over of the month's first.
    assert measured.total - measured.kept == pytest.approx(min(1, measured.total))
    assert f"{uptime.kept.model}, {uptime.kept.tier}" in answer.content.decode()
    exact = Measured(kept=102, total=125)
    assert _percent(replace(uptime.kept, measured=exact)) == "81.6 %"
    assert _percent(replace(uptime.kept, measured=Measured(kept=99.996, total=100))) == "99.99 %"


def test_the_credit_is_told_to_those_who_may_know(
    signed_in: SignIn, acme_address: str, houses: TwoTenants
) -> None:
    with operator_scope("test"):
        Tenant.objects.filter(id=houses.acme.tenant.id).update(billing_mode="prepaid")
    for role, knows in (("owner", True), ("billing", True), ("developer", False)):
        credit = signed_in(role).get(acme_address).context["now"]["credit_nanos"]
        assert (credit is not None) is knows, role


def test_charts_and_refusals_of_the_month_lead_on(
    signed_in: SignIn, acme_address: str, houses: TwoTenants
) -> None:
    now = datetime.now(UTC)
    key, began = houses.acme.key, now - timedelta(days=29)
    with operator_scope("test"):
        add_to_rollups(
            [
                use_of(
                    key, outcome="completed", arrived_ms=int(at.timestamp() * 1000), cost_nanos=n
                )
                for at, n in ((now, 1_000_000_001), (began, 7), (began - timedelta(days=1), 99))
            ]
        )
    refuse(of_key(key, now, count=42), of_key(houses.globex.key, now, count=5000))
    client = signed_in("viewer")
    found = client.get(acme_address).context["now"]
    assert found["month"].data.refused == 42
    spend, ttft = found["charts"]
    assert list(spend.series[0].values) == [7, *[0] * 28, 1_000_000_001]
    for series in ttft.series:
        assert series.values[0] == pytest.approx(20, rel=0.05) and series.values[1] is None
    assert [link.word for link in found["links"]] == ["Usage", "Labels", "Requests", "Refusals"]
    for link in found["links"]:
        answer = client.get(link.address)
        assert answer.status_code == 200 and answer.context["filters"].errors == {}, link.word
