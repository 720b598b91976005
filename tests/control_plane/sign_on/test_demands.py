"""A tenant that asks for more than a password."""

import pytest
from allauth.mfa.models import Authenticator

from tenants.isolation.scoping import operator_scope
from tenants.models import Membership, Tenant, User
from tests.support.accounts.browser import Browser
from tests.support.sign_on.arriving import answer_of
from tests.support.sign_on.lying_provider import LyingProvider
from tests.support.two_tenants import House

pytestmark = pytest.mark.django_db


def demands(house: House, **fields: bool) -> None:
    with operator_scope("test"):
        Tenant.objects.filter(pk=house.tenant.pk).update(**fields)


def with_second_factor(user: User) -> None:
    Authenticator.objects.create(user=user, type=Authenticator.Type.TOTP, data={"secret": ""})


def signed_in(user: User) -> Browser:
    """By password, and with a code where one is asked for."""
    browser = Browser()
    browser.http.force_login(user)
    return browser


def refusal(browser: Browser, house: House) -> str | None:
    """The code of the page's and the API's refusal, which are one; None where they let in."""
    page = browser.get(f"/t/{house.tenant.pk}/projects")
    answer = browser.get(f"/api/v1/tenants/{house.tenant.pk}/projects")
    assert page.status_code == answer.status_code
    if page.status_code == 200:
        return None
    assert page.status_code == 403
    code: str = answer.json()["error"]["code"]
    assert page.context["refusal"].code == code
    return code


def test_a_session_without_single_sign_on_is_asked_for_it(
    acme: House, provider: LyingProvider
) -> None:
    before = signed_in(acme.people["admin"])
    assert refusal(before, acme) is None
    demands(acme, demands_sign_on=True)
    assert refusal(before, acme) == "sign_on_required"
    assert refusal(signed_in(acme.people["admin"]), acme) == "sign_on_required"
    page = before.get(f"/t/{acme.tenant.pk}/projects").content.decode()
    assert f"/sso/{acme.tenant.pk}/?next=%2Ft%2F{acme.tenant.pk}%2Fprojects" in page


def test_signing_on_in_that_session_lets_it_in_and_leaves_it_what_it_had(
    acme: House, globex: House, provider: LyingProvider
) -> None:
    admin = acme.people["admin"]
    with operator_scope("test"):
        Membership.objects.create(tenant=globex.tenant, user=admin)
    demands(acme, demands_sign_on=True)
    browser = signed_in(admin)
    provider.claims = {"email": admin.email}
    answer_of(browser, acme.tenant, provider)
    assert refusal(browser, acme) is None
    assert refusal(browser, globex) is None


def test_an_owner_with_both_gets_in_beside_the_provider(
    acme: House, provider: LyingProvider
) -> None:
    demands(acme, demands_sign_on=True)
    owner, admin = acme.people["owner"], acme.people["admin"]
    assert refusal(signed_in(owner), acme) == "sign_on_required"
    with_second_factor(owner)
    with_second_factor(admin)
    assert refusal(signed_in(owner), acme) is None
    assert refusal(signed_in(admin), acme) == "sign_on_required"


def test_a_session_without_a_second_factor_is_asked_for_it(acme: House) -> None:
    viewer = acme.people["viewer"]
    before = signed_in(viewer)
    demands(acme, demands_second_factor=True)
    assert refusal(before, acme) == "second_factor_required"
    with_second_factor(viewer)
    # This session has not shown it.
    assert refusal(before, acme) == "second_factor_required"
    assert refusal(signed_in(viewer), acme) is None
    Authenticator.objects.all().delete()
    assert refusal(signed_in(viewer), acme) == "second_factor_required"


@pytest.mark.parametrize(
    ("methods", "is_enough"),
    [(["mfa"], True), (["pwd", "otp"], True), (["pwd"], False), (["otp"], False), (None, False)],
)
def test_a_providers_second_factor_counts_for_its_tenant(
    methods: list[str] | None, is_enough: bool, acme: House, provider: LyingProvider
) -> None:
    demands(acme, demands_second_factor=True, demands_sign_on=True)
    provider.claims = {"amr": methods}
    browser = Browser()
    answer_of(browser, acme.tenant, provider)
    assert refusal(browser, acme) == (None if is_enough else "second_factor_required")


def test_a_providers_second_factor_counts_nowhere_else(
    acme: House, globex: House, provider: LyingProvider
) -> None:
    admin = acme.people["admin"]
    with operator_scope("test"):
        Membership.objects.create(tenant=globex.tenant, user=admin)
    demands(globex, demands_second_factor=True)
    browser = signed_in(admin)
    provider.claims = {"email": admin.email, "amr": ["mfa"]}
    answer_of(browser, acme.tenant, provider)
    assert refusal(browser, globex) == "second_factor_required"


def test_keys_are_not_asked(acme: House) -> None:
    demands(acme, demands_second_factor=True, demands_sign_on=True)
    key = acme.issue(scopes=["admin"])
    address = f"/api/v1/tenants/{acme.tenant.pk}/projects"
    answer = Browser().http.get(address, headers={"authorization": f"Bearer {key}"})
    assert answer.status_code == 200


def test_a_stranger_learns_nothing_of_what_is_asked(globex: House, acme: House) -> None:
    demands(globex, demands_sign_on=True)
    browser = signed_in(acme.people["owner"])
    assert browser.get(f"/t/{globex.tenant.pk}/").status_code == 404
    assert browser.get(f"/api/v1/tenants/{globex.tenant.pk}").status_code == 404


def test_a_fragment_leads_to_the_page_that_asks(acme: House) -> None:
    demands(acme, demands_second_factor=True)
    browser = signed_in(acme.people["viewer"])
    here = f"/t/{acme.tenant.pk}/projects"
    asked = {"HX-Request": "true", "HX-Current-URL": f"http://testserver{here}"}
    answer = browser.http.get(here, headers=asked)
    assert (answer.status_code, answer["HX-Redirect"]) == (403, here)
