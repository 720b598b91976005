"""Where the link of an invitation leads: signed in, signed out, and for somebody new."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from django.core import mail
from pytest_django.fixtures import Settings

from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import AuditEvent, Invitation, Membership, Tenant, User
from tenants.permissions import Role
from tests.support.accounts.browser import Browser
from tests.support.accounts.invitations import EMAIL, expire, invited, link_of
from tests.support.two_tenants import PASSWORD, House

FIELDS = {"name": "Carol", "password": PASSWORD}


@pytest.fixture
def carol(acme: House) -> User:
    return User.objects.create_user(EMAIL, PASSWORD)


def signed_in(email: str = EMAIL) -> Browser:
    browser = Browser()
    assert browser.sign_in(email).status_code == 302
    return browser


def role_of(email: str, house: House) -> str | None:
    with tenant_scope(house.tenant.id):
        found = Membership.objects.filter(user__email=email).first()
        return None if found is None else str(found.role)


def refusal(answer: Any) -> str:
    assert answer.status_code == 400
    return str(answer.context["problem"].code)


# With an account ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("carol")
def test_whoever_is_signed_in_accepts_and_is_in(acme: House) -> None:
    _, token = invited(acme.tenant)
    browser = signed_in()
    page = browser.get(link_of(token))
    assert page.context["offer"].organisation == "Acme" and page["Cache-Control"] == "no-store"
    assert role_of(EMAIL, acme) is None
    assert browser.submit(link_of(token), accept="")["Location"] == f"/t/{acme.tenant.id}/"
    assert role_of(EMAIL, acme) == "developer"
    assert browser.get(f"/t/{acme.tenant.id}/").status_code == 200
    assert refusal(browser.get(link_of(token))) == "invitation_accepted"


@pytest.mark.usefixtures("carol")
def test_whoever_is_signed_out_signs_in_and_comes_back(acme: House) -> None:
    _, token = invited(acme.tenant)
    browser = Browser()
    page = browser.get(link_of(token)).content.decode()
    assert f"/account/login/?next={link_of(token)}" in page and "password" not in page
    back = browser.sign_in(EMAIL, next=link_of(token))
    assert back["Location"] == link_of(token)
    browser.submit(link_of(token), accept="")
    assert role_of(EMAIL, acme) == "developer"


@pytest.mark.usefixtures("carol")
@pytest.mark.parametrize("is_signed_in", [True, False])
def test_whoever_declines_joins_nothing(acme: House, is_signed_in: bool) -> None:
    _, token = invited(acme.tenant)
    browser = signed_in() if is_signed_in else Browser()
    assert browser.submit(link_of(token), decline="").status_code == 302
    assert role_of(EMAIL, acme) is None
    assert refusal(signed_in().submit(link_of(token), accept="")) == "invitation_declined"


def test_another_neither_accepts_nor_declines(acme: House, alice: Browser) -> None:
    invitation, token = invited(acme.tenant)
    for answer in ({"accept": ""}, {"decline": ""}):
        assert refusal(alice.submit(link_of(token), **answer)) == "invitation_of_another"
    assert EMAIL not in alice.get(link_of(token)).content.decode()
    with operator_scope("test"):
        assert Invitation.objects.get(id=invitation.id).state == "open"


@pytest.mark.usefixtures("carol")
def test_somebody_belongs_to_several_and_sees_them_all(acme: House, globex_house: House) -> None:
    browser = signed_in()
    for house in (acme, globex_house):
        _, token = invited(house.tenant)
        browser.submit(link_of(token), accept="")
    page = browser.get("/t/").content.decode()
    for house in (acme, globex_house):
        assert f"/t/{house.tenant.id}/" in page


def test_an_account_that_is_turned_off_does_not_come_in_by_a_link(acme: House, carol: User) -> None:
    _, token = invited(acme.tenant)
    carol.is_active = False
    carol.save()
    browser = Browser()
    assert refusal(browser.submit(link_of(token), **FIELDS)) == "has_account"
    assert browser.email is None and role_of(EMAIL, acme) is None
    # Whether there is an account is nothing for those who invited it to read.
    with tenant_scope(acme.tenant.id):
        seal_now()
        assert not AuditEvent.objects.filter(verb="refused").exists()


# Somebody new -------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["open", "invited"])
def test_somebody_new_makes_an_account_and_is_in(
    acme: House, settings: Settings, mode: str
) -> None:
    settings.PENSTOCK_SIGN_UP = mode
    _, token = invited(acme.tenant, role=Role.BILLING)
    browser = Browser()
    assert browser.submit(link_of(token), **FIELDS)["Location"] == f"/t/{acme.tenant.id}/"
    assert browser.email == EMAIL and role_of(EMAIL, acme) == "billing"
    user = User.objects.get(email=EMAIL)
    assert (user.name, user.is_staff, user.is_superuser) == ("Carol", False, False)
    with operator_scope("test"):
        assert not Tenant.objects.exclude(memberships__role="owner").exists()
        assert user.memberships.count() == 1
    assert Browser().sign_in(EMAIL).status_code == 302
    assert refusal(Browser("192.0.2.2").submit(link_of(token), **FIELDS)) == "invitation_accepted"


def test_nobody_new_is_let_in_where_sign_up_is_off(
    acme: House, carol: User, settings: Settings
) -> None:
    settings.PENSTOCK_SIGN_UP = "off"
    _, token = invited(acme.tenant, email="dave@initech.example")
    browser = Browser()
    assert "new-password" not in browser.get(link_of(token)).content.decode()
    assert browser.submit(link_of(token), **FIELDS).status_code == 403
    assert not User.objects.filter(email="dave@initech.example").exists()
    # Whoever has an account joins all the same.
    _, token = invited(acme.tenant)
    signed_in().submit(link_of(token), accept="")
    assert role_of(EMAIL, acme) == "developer"


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"password": "short"}, "password"),
        ({"password": ""}, "password"),
        ({"password": EMAIL}, "password"),
        ({"name": "x" * 201}, "name"),
    ],
)
def test_what_was_typed_stays_and_nothing_is_half_made(
    acme: House, wrong: dict[str, str], field: str
) -> None:
    invitation, token = invited(acme.tenant)
    browser = Browser()
    page = browser.submit(link_of(token), **{**FIELDS, **wrong})
    assert field in page.context["form"].errors
    assert PASSWORD not in page.content.decode()
    assert not User.objects.filter(email=EMAIL).exists()
    with operator_scope("test"):
        assert Invitation.objects.get(id=invitation.id).state == "open"
    browser.submit(link_of(token), **FIELDS)
    assert role_of(EMAIL, acme) == "developer"


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["accepted", "withdrawn", "expired", "declined"])
def test_a_link_that_is_over_says_so_to_whoever_holds_it(acme: House, state: str) -> None:
    invitation, token = invited(acme.tenant)
    if state == "expired":
        expire(invitation)
    else:
        with operator_scope("test"):
            Invitation.objects.filter(id=invitation.id).update(
                outcome=state, ended_at=invitation.sent_at
            )
    browser = Browser()
    assert refusal(browser.get(link_of(token))) == f"invitation_{state}"
    assert refusal(browser.submit(link_of(token), **FIELDS)) == f"invitation_{state}"
    assert not User.objects.filter(email=EMAIL).exists()
    with tenant_scope(acme.tenant.id):
        seal_now()
        event = AuditEvent.objects.get(verb="refused")
        assert json.loads(event.changes) == {"reason": f"invitation_{state}"}
        assert (event.record_id, event.actor_kind) == (str(invitation.id), "unknown")
        assert event.personal.address == "192.0.2.1"


@pytest.mark.parametrize("token", ["x", "A" * 64, "%00", "..%2f"])
def test_a_made_up_link_leads_nowhere(acme: House, token: str) -> None:
    assert Browser().get(link_of(token)).status_code in (400, 404)


@pytest.mark.usefixtures("one_window")
def test_links_are_not_guessed_at_speed(acme: House) -> None:
    browser = Browser()
    statuses = [browser.submit(link_of("x"), **FIELDS).status_code for _ in range(21)]
    assert statuses == [400] * 20 + [429]


def test_another_site_can_make_nobody_join(acme: House, carol: User) -> None:
    _, token = invited(acme.tenant)
    browser = signed_in()
    assert browser.http.post(link_of(token), {"accept": ""}).status_code == 403
    assert role_of(EMAIL, acme) is None


def test_a_tenants_name_breaks_neither_the_header_nor_the_lines(
    acme: House, django_capture_on_commit_callbacks: Callable[..., AbstractContextManager[Any]]
) -> None:
    with operator_scope("test"):
        Tenant.objects.filter(id=acme.tenant.id).update(
            name="Acme\r\nBcc: bob@globex.example\r\n\r\n" + "x" * 150
        )
        acme.tenant.refresh_from_db()
    with django_capture_on_commit_callbacks(execute=True):
        invited(acme.tenant)
    message = mail.outbox[-1]
    assert message.to == [EMAIL] and message.bcc == []
    assert "Acme Bcc: bob@ globex. example" in str(message.body)
    assert "x" * 100 not in str(message.body)
