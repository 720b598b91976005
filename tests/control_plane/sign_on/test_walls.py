"""A provider of Acme signs nobody into Globex."""

import json
from collections.abc import Iterator

import pytest
from allauth.mfa.models import Authenticator

from tenants.access.session_proofs import RECENT
from tenants.isolation.scoping import operator_scope
from tenants.models import Membership, SignOnConfiguration, SignOnIdentity, User
from tenants.permissions import Role
from tests.support.accounts.browser import Browser
from tests.support.sign_on.arriving import (
    a_provider_of,
    address_at_provider,
    answer_of,
    refusals,
    set_up,
)
from tests.support.sign_on.lying_provider import LyingProvider
from tests.support.two_tenants import House

pytestmark = pytest.mark.django_db
SESSIONS = "/api/v1/me/sessions"


@pytest.fixture
def of_globex(globex: House) -> Iterator[LyingProvider]:
    with a_provider_of(globex.tenant, domain="globex.example") as provider:
        yield provider


@pytest.fixture
def alice_of_both(acme: House, globex: House) -> User:
    """Acme's developer, who owns Globex too, and is an operator."""
    user = acme.people["developer"]
    with operator_scope("test"):
        Membership.objects.create(tenant=globex.tenant, user=user, role=Role.OWNER)
    User.objects.filter(pk=user.pk).update(is_staff=True, is_superuser=True)
    return user


def enters(browser: Browser, house: House) -> bool:
    page = browser.get(f"/t/{house.tenant.pk}/").status_code
    api = browser.get(f"/api/v1/tenants/{house.tenant.pk}").status_code
    assert page == api, (page, api)
    return bool(page == 200)


def test_its_session_lists_and_ends_itself_alone(
    browser: Browser, acme: House, provider: LyingProvider
) -> None:
    provider.claims = {"email": acme.people["developer"].email}
    own = Browser("192.0.2.2")
    own.sign_in(acme.people["developer"].email)
    answer_of(browser, acme.tenant, provider)
    both = own.get(SESSIONS).json()["data"]
    assert [len(both), len(browser.get(SESSIONS).json()["data"])] == [2, 1]
    (theirs,) = [row["id"] for row in both if row["is_current"]]
    csrf = {"x-csrftoken": browser.http.cookies["penstock_csrf"].value}
    assert browser.http.delete(f"{SESSIONS}/{theirs}", headers=csrf).status_code == 404
    assert browser.http.delete(SESSIONS, headers=csrf).status_code == 204
    page = browser.get("/account/sessions/").content.decode()
    assert page.count("192.0.2.") == 1
    browser.send("/account/sessions/")
    assert own.email == acme.people["developer"].email


def test_what_costs_everything_takes_the_provider_again(
    browser: Browser, acme: House, provider: LyingProvider
) -> None:
    provider.claims = {"email": acme.people["admin"].email}
    answer_of(browser, acme.tenant, provider)
    export = f"/t/{acme.tenant.pk}/settings/export"
    assert browser.submit(export)["Content-Type"] == "application/x-ndjson"
    session = browser.http.session
    sign_ons = session["proofs"]["sign_ons"]
    for told in sign_ons.values():
        told["until"] -= RECENT.total_seconds() + 1
    session.save()
    asked = browser.submit(export)
    assert asked["Location"] == f"/sso/{acme.tenant.pk}/?next={export.replace('/', '%2F')}"
    answer_of(browser, acme.tenant, provider, next=export)
    assert browser.submit(export)["Content-Type"] == "application/x-ndjson"


def test_not_by_a_foreign_address(
    browser: Browser, acme: House, globex: House, provider: LyingProvider, of_globex: LyingProvider
) -> None:
    User.objects.filter(pk=globex.people["owner"].pk).update(email="bob@globex.example")
    provider.claims = {"email": "bob@globex.example"}
    assert answer_of(browser, acme.tenant, provider).status_code == 403
    assert browser.email is None
    assert refusals(acme.tenant.pk) == ["foreign_domain"]


def test_not_by_a_reused_subject(
    acme: House, globex: House, provider: LyingProvider, of_globex: LyingProvider
) -> None:
    of_globex.claims = {"sub": "bob", "email": "bob@globex.example"}
    answer_of(Browser(), globex.tenant, of_globex)
    provider.claims = {"sub": "bob"}
    browser = Browser()
    answer_of(browser, acme.tenant, provider)
    assert browser.email == "new@acme.example"
    assert not enters(browser, globex)


def test_not_by_a_swapped_issuer(
    acme: House, globex: House, provider: LyingProvider, of_globex: LyingProvider
) -> None:
    of_globex.claims = {"sub": "bob", "email": "bob@globex.example"}
    answer_of(Browser(), globex.tenant, of_globex)
    # In the token, in discovery, and as Acme's own setting.
    browser = Browser()
    provider.claims = {"sub": "bob", "iss": of_globex.issuer}
    assert answer_of(browser, acme.tenant, provider).status_code == 403
    provider.discovery = {"issuer": of_globex.issuer}
    assert browser.submit(f"/sso/{acme.tenant.pk}/").status_code == 403
    assert refusals(acme.tenant.pk) == ["wrong_issuer"]
    with operator_scope("test"):
        SignOnConfiguration.objects.filter(tenant=acme.tenant).update(issuer=of_globex.issuer)
    of_globex.claims |= {"email": "new@acme.example"}
    answer_of(browser, acme.tenant, of_globex)
    assert browser.email == "new@acme.example"
    assert not enters(browser, globex)
    with operator_scope("test"):
        bound = SignOnIdentity.objects.filter(subject="bob").values_list("tenant_id", "user__email")
        assert set(bound) == {
            (globex.tenant.pk, "bob@globex.example"),
            (acme.tenant.pk, "new@acme.example"),
        }


def test_not_by_a_replayed_answer(
    browser: Browser, acme: House, globex: House, provider: LyingProvider, of_globex: LyingProvider
) -> None:
    query = provider.approve(address_at_provider(browser, acme.tenant))
    address_at_provider(browser, globex.tenant)
    answer = browser.get(f"/sso/{globex.tenant.pk}/callback?{query}")
    assert (answer.status_code, browser.email) == (403, None)
    assert refusals(globex.tenant.pk) == ["unknown_state"]
    assert of_globex.exchanges == []


def test_not_by_a_domain_that_is_not_proven(
    browser: Browser, acme: House, globex: House, provider: LyingProvider
) -> None:
    with operator_scope("test"):
        assert globex.mail_domain.proven_at is None
    set_up(globex.tenant, provider)
    provider.claims = {"email": f"new@{globex.mail_domain.domain}"}
    for house in (globex, acme):
        assert answer_of(browser, house.tenant, provider).status_code == 403
        assert refusals(house.tenant.pk) == ["foreign_domain"]
    assert browser.email is None


def test_not_by_a_session_from_before(
    acme: House, globex: House, provider: LyingProvider, alice_of_both: User
) -> None:
    provider.claims = {"email": alice_of_both.email}
    browser = Browser()
    answer_of(browser, acme.tenant, provider)
    assert enters(browser, acme) and not enters(browser, globex)
    # Acme's provider is changed: what the one before said is worth nothing.
    with operator_scope("test"):
        SignOnConfiguration.objects.filter(tenant=acme.tenant).update(issuer="https://new.example")
    assert not enters(browser, acme) and not enters(browser, globex)


def test_a_session_of_acmes_provider_opens_acme_alone(
    acme: House, globex: House, provider: LyingProvider, alice_of_both: User
) -> None:
    provider.claims = {"email": alice_of_both.email}
    browser = Browser()
    answer_of(browser, acme.tenant, provider)
    assert browser.email == alice_of_both.email
    refused = browser.get(f"/api/v1/tenants/{globex.tenant.pk}/members")
    assert refused.json()["error"]["code"] == "own_sign_in_required"
    assert browser.get("/admin/").status_code == 302
    assert browser.get("/api/v1/usage").status_code == 400  # no operator's look at all tenants
    asked = f"/api/v1/usage?tenant_id={globex.tenant.pk}"
    assert browser.get(asked).json()["error"]["code"] == "own_sign_in_required"


@pytest.mark.parametrize("has_password", [True, False])
@pytest.mark.parametrize(
    "page",
    [
        "/account/email/",
        "/account/password/set/",
        "/account/password/change/",
        "/account/2fa/",
        "/account/2fa/totp/activate/",
        "/account/2fa/recovery-codes/generate/",
        "/account/reauthenticate/",
    ],
)
def test_a_provider_changes_nothing_of_an_account(
    page: str, has_password: bool, acme: House, provider: LyingProvider, alice_of_both: User
) -> None:
    if not has_password:
        alice_of_both.set_unusable_password()
        alice_of_both.save()
    provider.claims = {"email": alice_of_both.email}
    browser = Browser()
    answer_of(browser, acme.tenant, provider)
    assert browser.get(page).status_code == 403
    forms = {"email": "mine@evil.example", "password1": "x" * 20, "password2": "x" * 20}
    assert browser.submit(page, **forms).status_code == 403
    assert not Authenticator.objects.exists()


def test_the_password_opens_what_the_provider_did_not(
    acme: House, globex: House, provider: LyingProvider, alice_of_both: User
) -> None:
    provider.claims = {"email": alice_of_both.email}
    browser = Browser()
    answer_of(browser, acme.tenant, provider)
    assert not enters(browser, globex)
    token = browser.get("/api/v1/session").json()["csrf_token"]
    body = {"email": alice_of_both.email, "password": "correct horse battery"}
    answer = browser.http.post(
        "/api/v1/session",
        json.dumps(body),
        content_type="application/json",
        headers={"X-CSRFToken": token},
    )
    assert answer.status_code == 200
    assert enters(browser, globex) and enters(browser, acme)


def test_another_persons_session_is_not_widened(
    acme: House, globex: House, provider: LyingProvider
) -> None:
    browser = Browser()
    browser.sign_in(globex.people["owner"].email)
    assert enters(browser, globex)
    answer_of(browser, acme.tenant, provider)
    assert browser.email == "new@acme.example"
    assert not enters(browser, globex)
