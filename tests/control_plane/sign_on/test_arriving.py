"""Somebody signs on with their organisation's provider: who they are then, and for how long."""

import time
import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest
from django.contrib.sessions.models import Session

from tenants.access.session_proofs import SIGN_ON_LASTS
from tenants.isolation.scoping import operator_scope
from tenants.models import Membership, SignOnConfiguration, SignOnIdentity, Tier, User
from tests.support.accounts.browser import Browser
from tests.support.sign_on.arriving import address_at_provider, answer_of, refusals
from tests.support.sign_on.lying_provider import CLIENT_SECRET, LyingProvider
from tests.support.two_tenants import House

pytestmark = pytest.mark.django_db


def role_of(house: House, email: str) -> str | None:
    with operator_scope("test"):
        found = Membership.objects.filter(tenant=house.tenant, user__email=email).first()
        return None if found is None else found.role


def follow(house: House, **fields: object) -> None:
    with operator_scope("test"):
        SignOnConfiguration.objects.filter(tenant=house.tenant).update(**fields)


def test_somebody_new_gets_an_account_without_a_password_and_the_default_role(
    browser: Browser, acme: House, provider: LyingProvider
) -> None:
    answer = answer_of(browser, acme.tenant, provider)
    assert (answer.status_code, answer["Location"]) == (302, f"/t/{acme.tenant.pk}/")
    assert browser.get(answer["Location"]).status_code == 200
    user = User.objects.get(email="new@acme.example")
    assert (user.name, user.has_usable_password()) == ("New Person", False)
    assert role_of(acme, user.email) == "viewer"


def test_the_code_is_exchanged_with_pkce_and_one_redirect_address(
    browser: Browser, acme: House, provider: LyingProvider
) -> None:
    address = address_at_provider(browser, acme.tenant)
    assert "code_challenge_method=S256" in address and "nonce=" in address
    browser.get(f"/sso/{acme.tenant.pk}/callback?{provider.approve(address)}")
    (exchange,) = provider.exchanges
    assert len(exchange.form["code_verifier"]) >= 43
    assert exchange.form["redirect_uri"] == f"http://testserver/sso/{acme.tenant.pk}/callback"


def test_an_account_with_the_address_is_bound_and_stays_bound_when_the_address_changes(
    browser: Browser, acme: House, provider: LyingProvider
) -> None:
    provider.claims = {"email": "developer@acme.example"}
    answer_of(browser, acme.tenant, provider)
    assert browser.email == "developer@acme.example"
    provider.claims = {"email": "elsewhere@nowhere.example"}
    other = Browser()
    assert answer_of(other, acme.tenant, provider).status_code == 302
    assert other.email == "developer@acme.example"


def test_a_new_subject_with_a_bound_address_is_refused(
    browser: Browser, acme: House, provider: LyingProvider
) -> None:
    answer_of(browser, acme.tenant, provider)
    provider.claims = {"sub": "subject-2"}
    assert answer_of(Browser(), acme.tenant, provider).status_code == 403
    assert refusals(acme.tenant.pk) == ["other_subject"]


def test_next_leads_on_within_the_service(
    browser: Browser, acme: House, provider: LyingProvider
) -> None:
    projects = f"/t/{acme.tenant.pk}/projects"
    assert answer_of(browser, acme.tenant, provider, next=projects)["Location"] == projects
    elsewhere = answer_of(Browser(), acme.tenant, provider, next="https://evil.example/")
    assert elsewhere["Location"] == f"/t/{acme.tenant.pk}/"


def test_a_session_lasts_twelve_hours_however_often_it_is_used(
    browser: Browser, acme: House, provider: LyingProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_of(browser, acme.tenant, provider)
    key = browser.http.cookies["penstock_session"].value
    ends = Session.objects.get(session_key=key).expire_date
    assert abs(ends - datetime.now(UTC) - SIGN_ON_LASTS) < timedelta(minutes=1)
    late = time.time() + SIGN_ON_LASTS.total_seconds() + 1
    clock = SimpleNamespace(time=lambda: late)
    monkeypatch.setattr("tenants.access.session_proofs.time", clock)
    assert browser.get(f"/t/{acme.tenant.pk}/").status_code == 403


def test_roles_follow_the_claim_at_each_sign_in(acme: House, provider: LyingProvider) -> None:
    follow(acme, role_claim="groups", roles={"ops": "admin", "dev": "developer"})
    found = []
    for groups in (["dev", "ops", 7], "dev", [], ["others"]):
        provider.claims = {"groups": groups}
        assert answer_of(Browser(), acme.tenant, provider).status_code == 302
        found.append(role_of(acme, "new@acme.example"))
    assert found == ["admin", "developer", "viewer", "viewer"]


def test_without_a_claim_a_role_once_given_stays(acme: House, provider: LyingProvider) -> None:
    provider.claims = {"email": "admin@acme.example", "groups": ["ops"]}
    assert answer_of(Browser(), acme.tenant, provider).status_code == 302
    assert role_of(acme, "admin@acme.example") == "admin"


def test_whoever_has_no_role_is_refused_and_no_member_any_more(
    acme: House, provider: LyingProvider
) -> None:
    follow(acme, role_claim="groups", roles={"dev": "developer"}, default_role="")
    assert answer_of(Browser(), acme.tenant, provider).status_code == 403
    assert not User.objects.filter(email="new@acme.example").exists()
    provider.claims = {"groups": ["dev"]}
    browser = Browser()
    answer_of(browser, acme.tenant, provider)
    provider.claims = {}
    assert answer_of(Browser(), acme.tenant, provider).status_code == 403
    assert role_of(acme, "new@acme.example") is None
    assert browser.get(f"/t/{acme.tenant.pk}/").status_code == 404
    assert refusals(acme.tenant.pk) == ["no_role"]


def test_the_only_owner_stays_one_whatever_the_claim_says(
    acme: House, provider: LyingProvider
) -> None:
    follow(acme, role_claim="groups", roles={"dev": "developer"}, default_role="")
    provider.claims = {"email": "owner@acme.example", "groups": ["dev"]}
    assert answer_of(Browser(), acme.tenant, provider).status_code == 302
    assert role_of(acme, "owner@acme.example") == "owner"
    provider.claims = {"email": "owner@acme.example"}
    assert answer_of(Browser(), acme.tenant, provider).status_code == 403
    assert role_of(acme, "owner@acme.example") == "owner"


def test_an_address_leads_to_its_organisation_whoever_has_an_account(
    browser: Browser, acme: House, provider: LyingProvider
) -> None:
    known, unknown = (
        browser.submit("/account/sso/", email=f"{name}@Acme.example", next="/t/")
        for name in ("owner", "nobody")
    )
    assert known["Location"] == unknown["Location"] == f"/sso/{acme.tenant.pk}/?next=%2Ft%2F"
    elsewhere = browser.submit("/account/sso/", email="owner@globex.example")
    assert elsewhere.context["form"].has_error("email", "no_sign_on")


def test_a_tenant_without_a_provider_has_no_such_page(browser: Browser, globex: House) -> None:
    for tenant_id in (globex.tenant.pk, uuid.uuid4()):
        assert browser.get(f"/sso/{tenant_id}/").status_code == 404
        assert browser.get(f"/sso/{tenant_id}/callback?state=a&code=b").status_code == 404


def test_another_site_can_send_nobody_to_a_provider(
    browser: Browser, acme: House, provider: LyingProvider
) -> None:
    assert browser.get(f"/sso/{acme.tenant.pk}/").status_code == 200
    assert browser.http.post(f"/sso/{acme.tenant.pk}/").status_code == 403
    assert provider.paths == []


def test_the_secret_is_stored_encrypted(acme: House, provider: LyingProvider) -> None:
    with operator_scope("test"):
        stored = SignOnConfiguration.objects.get(tenant=acme.tenant)
        assert CLIENT_SECRET.encode() not in bytes(stored.encrypted_client_secret)
        assert stored.client_secret == CLIENT_SECRET
        assert SignOnIdentity.objects.count() == 0


def test_whoever_is_one_too_many_for_the_tier_is_refused_and_a_member_is_not(
    acme: House, provider: LyingProvider
) -> None:
    with operator_scope("test"):
        Tier.objects.update(max_members=1)
    page = answer_of(Browser(), acme.tenant, provider)
    assert page.status_code == 403 and "as many members" in page.content.decode()
    assert not User.objects.filter(email="new@acme.example").exists()
    assert refusals(acme.tenant.pk) == ["too_many_members"]
    provider.claims = {"email": "developer@acme.example"}
    assert answer_of(Browser(), acme.tenant, provider).status_code == 302
