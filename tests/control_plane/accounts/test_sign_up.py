"""Signing up: who may, what they get, and that nothing is ever half made."""

import re

import pytest
from django.core import mail
from pytest_django.fixtures import Settings

from tenants.access import sign_up
from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent, Membership, Project, Tenant, User
from tests.support.accounts.browser import LOGIN, Browser, link_in_mail
from tests.support.accounts.same_work import Work, work_of
from tests.support.two_tenants import PASSWORD, House

SIGN_UP = "/account/signup/"
SENT = "/account/signup/sent/"
EMAIL = "carol@initech.example"
FIELDS = {"name": "Carol", "organisation": "Initech", "password": PASSWORD}


@pytest.fixture(autouse=True)
def _open(settings: Settings, acme: House) -> None:
    settings.PENSTOCK_SIGN_UP = "open"
    settings.PENSTOCK_SIGN_UP_TIER = "free"
    settings.PENSTOCK_SIGN_UP_CREDIT_NANOS = 0


def ask(email: str = EMAIL) -> Browser:
    browser = Browser()
    assert browser.submit(SIGN_UP, email=email)["Location"] == SENT
    return browser


def count() -> tuple[int, ...]:
    with operator_scope("test"):
        return tuple(
            model._default_manager.count() for model in (User, Tenant, Project, Membership)
        )


def test_whoever_has_proven_an_address_gets_a_prepaid_tenant_of_their_own() -> None:
    before = count()
    browser = ask("Carol@Initech.example")
    assert count() == before
    assert mail.outbox[-1].to == [EMAIL]
    assert browser.submit(link_in_mail(), **FIELDS)["Location"] == "/t/"
    assert browser.email == EMAIL
    with operator_scope("test"):
        tenant = Tenant.objects.get(name="Initech")
        assert (tenant.tier.name, tenant.billing_mode) == ("free", "prepaid")
        assert [project.name for project in tenant.projects.all()] == ["default"]
        members = Membership.objects.filter(tenant=tenant)
        assert [(each.user.email, each.role) for each in members] == [(EMAIL, "owner")]
        assert not members[0].user.is_staff
    assert Browser().sign_in(EMAIL).status_code == 302


def test_the_tier_and_the_credit_are_what_the_settings_say(settings: Settings) -> None:
    settings.PENSTOCK_SIGN_UP_TIER = "batch"
    settings.PENSTOCK_SIGN_UP_CREDIT_NANOS = 5 * 10**9
    ask().submit(link_in_mail(), **FIELDS)
    with operator_scope("test"):
        tenant = Tenant.objects.get(name="Initech")
        assert tenant.tier.name == "batch"
        booked = tenant.ledger_transactions.get()
        assert booked.kind == "promotion"


def test_neither_its_name_nor_its_slug_says_who_else_is_a_customer(acme: House) -> None:
    for organisation in ("ACME", "Initech"):
        browser = ask(f"carol@{organisation}.example")
        fields = FIELDS | {"organisation": organisation}
        assert browser.submit(link_in_mail(), **fields)["Location"] == "/t/"
    with operator_scope("test"):
        slugs = [Tenant.objects.get(name=name).slug for name in ("ACME", "Initech")]
    assert re.fullmatch(r"acme-[0-9a-f]{8} initech-[0-9a-f]{8}", " ".join(slugs))


@pytest.mark.parametrize("mode", ["invited", "off"])
def test_strangers_are_refused_where_sign_up_is_not_open(settings: Settings, mode: str) -> None:
    browser = ask()
    link = link_in_mail()
    settings.PENSTOCK_SIGN_UP = mode
    before = count()
    for path in (SIGN_UP, link, SENT):
        assert browser.get(path).status_code == 403
    assert browser.submit(SIGN_UP, email="dave@initech.example").status_code == 403
    assert browser.submit(link, **FIELDS).status_code == 403
    assert count() == before
    assert len(mail.outbox) == 1


def test_the_form_answers_alike_and_costs_the_same_whether_there_is_an_account(
    acme: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = acme.people["viewer"]
    closed.is_active = False
    closed.save()

    def work(email: str) -> Work:
        return work_of(lambda: ask(email), monkeypatch)

    work("warm@acme.example")
    known = work("owner@acme.example")
    assert known == work(EMAIL) == work(closed.email)
    assert len(mail.outbox) == 4
    assert "/signup/" not in mail.outbox[1].body and "/signup/" in mail.outbox[2].body


def test_a_link_works_once_and_only_as_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    browser = ask()
    link = link_in_mail()
    with monkeypatch.context() as patch:
        patch.setattr(sign_up, "LINK_SECONDS", -1)
        assert browser.get(link).status_code == 400
    before = count()
    assert browser.get(link.replace("signup/", "signup/x")).status_code == 400
    other = Browser("192.0.2.2")
    other.get(link)
    browser.submit(link, **FIELDS)
    token = other.http.cookies["penstock_csrf"].value
    again = FIELDS | {"organisation": "Initrode", "csrfmiddlewaretoken": token}
    assert other.http.post(link, again).status_code == 400
    assert count() == tuple(number + 1 for number in before)
    assert other.email is None


def test_nothing_is_made_where_a_part_cannot_be(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    browser = ask()
    link = link_in_mail()
    before = count()
    for wrong, field in (
        ({"organisation": ""}, "organisation"),
        ({"password": "short"}, "password"),
        ({"password": f"{EMAIL}"}, "password"),
    ):
        answer = browser.submit(link, **{**FIELDS, **wrong})
        assert answer.status_code == 200
        assert field in answer.context["form"].errors, wrong
        assert "Carol" in answer.content.decode()
        assert PASSWORD not in answer.content.decode()
    settings.PENSTOCK_SIGN_UP_TIER = "no such tier"
    assert browser.submit(link, **FIELDS).context["form"].errors
    settings.PENSTOCK_SIGN_UP_TIER = "free"
    settings.PENSTOCK_SIGN_UP_CREDIT_NANOS = 10**30  # the ledger refuses it, last of all
    browser.http.raise_request_exception = False
    browser.submit(link, **FIELDS)
    assert count() == before
    settings.PENSTOCK_SIGN_UP_CREDIT_NANOS = 0
    browser.submit(link, **FIELDS)
    assert browser.email == EMAIL


@pytest.mark.usefixtures("one_window")
def test_nobodys_mailbox_is_flooded() -> None:
    for _ in range(5):
        ask()
    assert Browser("192.0.2.9").submit(SIGN_UP, email=EMAIL).status_code == 429


def test_signing_up_is_recorded_in_the_tenants_log_with_who_did_it() -> None:
    ask().submit(link_in_mail(), **FIELDS)
    user = User.objects.get(email=EMAIL)
    with operator_scope("test"):
        seal_now()
        tenant = Tenant.objects.get(name="Initech")
        events = AuditEvent.objects.filter(tenant=tenant).order_by("sequence")
        assert {event.actor_id for event in events} == {str(user.pk)}
        assert "signed_up" in {event.verb for event in events}
        assert {event.personal.address for event in events} == {"192.0.2.1"}


def test_who_is_signed_in_is_not_signed_up(alice: Browser) -> None:
    assert alice.get(SIGN_UP)["Location"] == "/account/"


def test_another_site_can_sign_nobody_up() -> None:
    browser = Browser()
    browser.get(LOGIN)
    assert browser.http.post(SIGN_UP, {"email": EMAIL}).status_code == 403
