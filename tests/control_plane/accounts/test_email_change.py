"""Signing in with another email address."""

from collections.abc import Iterator

import pytest
from django.core import mail
from django.test import Client

from tenants.access import account_changes
from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent, User
from tests.support.accounts.browser import Browser, link_in_mail
from tests.support.two_tenants import CANARY, PASSWORD, House

EMAIL = "owner@acme.example"
NEW = "alice@acme.example"
ASK = "/account/email/"
SENT = "/account/email/sent/"


@pytest.fixture
def alice(alice: Browser) -> Browser:
    """She has given her password a moment ago."""
    assert alice.submit("/account/reauthenticate/", password=PASSWORD).status_code == 302
    return alice


@pytest.fixture(autouse=True)
def _nobody_left(acme: House) -> Iterator[None]:
    """Nothing here changes anybody but the owner."""
    others = User.objects.exclude(pk=acme.people["owner"].pk)
    before = set(others.values_list("pk", "email"))
    yield
    assert set(others.values_list("pk", "email")) == before


def test_the_address_changes_once_the_link_to_the_new_one_is_opened(alice: Browser) -> None:
    assert alice.submit(ASK, email="Alice@Acme.example")["Location"] == SENT
    assert mail.outbox[-1].to == [NEW]
    link = link_in_mail()
    assert alice.get(link).status_code == 200
    assert alice.email == EMAIL
    assert alice.submit(link).status_code == 302
    assert alice.email == NEW
    assert mail.outbox[-1].to == [EMAIL]
    assert Browser().sign_in(NEW).status_code == 302
    assert Browser("192.0.2.2").sign_in(EMAIL).status_code == 200


def test_an_address_of_somebody_else_cannot_be_taken_and_is_answered_like_any_other(
    alice: Browser,
) -> None:
    for email in (f"owner@{CANARY}.example", "VIEWER@acme.example"):
        assert alice.submit(ASK, email=email)["Location"] == SENT
        assert mail.outbox[-1].to == [email.lower()]
        assert "/email/confirm/" not in mail.outbox[-1].body
    assert alice.email == EMAIL


def test_an_address_that_became_somebody_elses_meanwhile_stays_theirs(
    alice: Browser, acme: House
) -> None:
    alice.submit(ASK, email=NEW)
    User.objects.filter(pk=acme.people["viewer"].pk).update(email=NEW)
    answer = alice.submit(link_in_mail())
    User.objects.filter(pk=acme.people["viewer"].pk).update(email="viewer@acme.example")
    assert answer.status_code == 400
    assert alice.email == EMAIL


def test_a_link_proves_the_address_it_was_sent_to_and_no_later_one(alice: Browser) -> None:
    alice.submit(ASK, email="mallory@evil.example")
    link = link_in_mail()
    alice.submit(ASK, email="victim@nowhere.example")
    alice.submit(link)
    assert alice.email == "mallory@evil.example"


def test_a_link_works_once_and_for_whom_it_was_made(alice: Browser) -> None:
    alice.submit(ASK, email=NEW)
    link = link_in_mail()
    stranger, viewer = Browser("192.0.2.2"), Browser("192.0.2.3")
    viewer.sign_in("viewer@acme.example")
    assert stranger.get(link)["Location"].startswith("/account/login/")
    assert viewer.submit(link).status_code == 400
    assert viewer.email == "viewer@acme.example"
    assert alice.submit(link).status_code == 302
    assert alice.submit(link).status_code == 400
    assert alice.email == NEW


def test_a_link_is_void_after_a_change_of_the_password_and_after_a_day(
    alice: Browser, acme: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice.submit(ASK, email=NEW)
    link = link_in_mail()
    with monkeypatch.context() as patch:
        patch.setattr(account_changes, "LINK_SECONDS", -1)
        assert alice.get(link).status_code == 400
    changed = {
        "oldpassword": PASSWORD,
        "password1": f"new {PASSWORD}",
        "password2": f"new {PASSWORD}",
    }
    assert alice.submit("/account/password/change/", **changed).status_code == 302
    assert alice.submit(link).status_code == 400
    assert alice.email == EMAIL


@pytest.mark.parametrize("key", ["x", "a:b:c", "..%2F", "%00"])
def test_a_made_up_link_is_refused(alice: Browser, key: str) -> None:
    assert alice.get(f"/account/email/confirm/{key}/").status_code in {400, 404}


def test_the_password_is_asked_for_where_the_session_has_not_given_it(acme: House) -> None:
    browser = Browser()
    browser.http.force_login(acme.people["owner"])
    browser.get("/account/login/")
    token = browser.http.get("/api/v1/session").json()["csrf_token"]
    answer = browser.http.post(ASK, {"email": NEW, "csrfmiddlewaretoken": token})
    assert answer["Location"].startswith("/account/reauthenticate/")
    assert mail.outbox == []
    wrong = browser.submit(answer["Location"], password="wrong")
    assert wrong.status_code == 200
    done = browser.submit(answer["Location"], password=PASSWORD)
    assert done.status_code == 302
    assert mail.outbox[-1].to == [NEW]


def test_what_is_wrong_is_said_beside_the_field_and_what_was_typed_stays(alice: Browser) -> None:
    for typed in ("no address", EMAIL, f"{'a' * 250}@acme.example"):
        answer = alice.submit(ASK, email=typed)
        assert "email" in answer.context["form"].errors
        assert typed in answer.content.decode()
    assert mail.outbox == []


def test_a_change_is_recorded_with_who_did_it(alice: Browser, acme: House) -> None:
    alice.submit(ASK, email="viewer@acme.example")
    alice.submit(ASK, email=NEW)
    alice.submit(link_in_mail())
    owner = str(acme.people["owner"].pk)
    with operator_scope("test"):
        seal_now()
        events = AuditEvent.objects.filter(verb__startswith="email").order_by("sequence")
        assert [(event.verb, event.actor_id, event.record_id) for event in events] == [
            ("email_change_requested", owner, owner),
            ("email_change_requested", owner, owner),
            ("email_changed", owner, owner),
        ]
        assert events.last().changed_fields == {"email": [EMAIL, NEW]}  # type: ignore[union-attr]


def test_strangers_are_sent_to_sign_in(db: None) -> None:
    for path in (ASK, SENT, "/account/email/confirm/x/"):
        assert Client().get(path)["Location"].startswith("/account/login/")
        assert Client().post(path)["Location"].startswith("/account/login/")
