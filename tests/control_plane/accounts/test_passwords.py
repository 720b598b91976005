"""Passwords: forgotten, set anew by a link, changed."""

import re

import pytest
from django.core import mail
from pytest_django.fixtures import Settings

from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent
from tests.support.accounts.browser import Browser, link_in_mail
from tests.support.accounts.same_work import Work, work_of
from tests.support.two_tenants import PASSWORD, House

EMAIL = "owner@acme.example"
RESET = "/account/password/reset/"
CHANGE = "/account/password/change/"
NEW = "tractor beneath nine lanterns"


def ask(email: str = EMAIL) -> Browser:
    browser = Browser()
    assert browser.submit(RESET, email=email)["Location"] == f"{RESET}done/"
    return browser


def set_by_link(browser: Browser, link: str, password: str = NEW) -> str:
    """Where it led to; empty for a page that refuses."""
    answer = browser.submit(link, password1=password, password2=password)
    return str(answer.get("Location", ""))


@pytest.mark.usefixtures("acme")
def test_a_forgotten_password_is_set_anew_and_ends_the_sessions_of_the_old_one(
    alice: Browser,
) -> None:
    browser = ask("Owner@Acme.example")
    assert mail.outbox[-1].to == [EMAIL]
    assert set_by_link(browser, link_in_mail()).endswith("/key/done/")
    assert alice.email is None
    assert browser.email is None
    assert Browser().sign_in(EMAIL).status_code == 200
    browser.sign_in(EMAIL, NEW)
    assert browser.email == EMAIL


@pytest.mark.usefixtures("acme")
def test_a_link_works_once() -> None:
    browser = ask()
    link = link_in_mail()
    assert set_by_link(browser, link)
    assert not set_by_link(browser, link, PASSWORD)
    assert not set_by_link(Browser(), link, PASSWORD)
    assert Browser().sign_in(EMAIL, NEW).status_code == 302


def test_a_link_is_void_once_the_account_has_changed_or_time_has_passed(
    acme: House, settings: Settings
) -> None:
    ask()
    link = link_in_mail()
    settings.PASSWORD_RESET_TIMEOUT = -1
    assert not set_by_link(Browser(), link)
    settings.PASSWORD_RESET_TIMEOUT = 3600
    owner = acme.people["owner"]
    owner.email = "else@acme.example"
    owner.save()
    assert not set_by_link(Browser(), link)


@pytest.mark.usefixtures("acme")
def test_a_made_up_link_is_refused() -> None:
    ask()
    link = link_in_mail()
    for other in (link[:-3] + "zz/", re.sub(r"key/\w+-", "key/0-", link), f"{RESET}key/0-0/"):
        assert not set_by_link(Browser(), other)


def test_the_form_answers_alike_and_costs_the_same_whether_the_account_exists_or_not(
    acme: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = acme.people["viewer"]
    closed.is_active = False
    closed.save()
    ask("warm@acme.example")

    def work(email: str) -> Work:
        return work_of(lambda: ask(email), monkeypatch)

    assert work(EMAIL) == work("nobody@nowhere.example") == work(closed.email)
    known, unknown, of_closed = mail.outbox[-3:]
    assert [known.to, unknown.to, of_closed.to] == [
        [EMAIL],
        ["nobody@nowhere.example"],
        [closed.email],
    ]
    assert "/key/" in known.body
    assert "/key/" not in unknown.body and "/key/" not in of_closed.body


@pytest.mark.usefixtures("acme")
def test_the_link_leads_to_the_public_address_whatever_host_was_asked() -> None:
    browser = Browser()
    browser.http.defaults["HTTP_HOST"] = "localhost"
    browser.submit(RESET, email=EMAIL)
    assert link_in_mail()
    assert "localhost" not in str(mail.outbox[-1].body)


@pytest.mark.usefixtures("acme", "one_window")
def test_nobodys_mailbox_is_flooded() -> None:
    for number in range(5):
        Browser(f"192.0.2.{number}").submit(RESET, email=EMAIL.upper() if number % 2 else EMAIL)
    answer = Browser("192.0.2.99").submit(RESET, email=EMAIL)
    assert answer.status_code == 429
    assert answer["Retry-After"] == "3600"
    assert len(mail.outbox) == 5


@pytest.mark.usefixtures("acme", "one_window")
def test_no_address_makes_us_write_to_everybody() -> None:
    answers = [Browser().submit(RESET, email=f"{number}@acme.example") for number in range(21)]
    assert [answer.status_code for answer in answers] == [302] * 20 + [429]


@pytest.mark.usefixtures("acme")
def test_without_a_mail_server_no_link_is_written_anywhere(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.console.EmailBackend"
    ask()
    written = capsys.readouterr()
    assert "/key/" not in written.out + written.err


@pytest.mark.usefixtures("acme")
def test_a_mail_server_that_is_down_changes_no_answer(settings: Settings) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1
    ask()
    ask("nobody@nowhere.example")


@pytest.mark.usefixtures("acme")
def test_a_weak_password_is_refused_beside_its_field() -> None:
    browser = ask()
    answer = browser.submit(link_in_mail(), password1="short", password2="short")
    assert "password1" in answer.context["form"].errors
    assert Browser().sign_in(EMAIL).status_code == 302


def test_a_password_is_changed_by_who_knows_it_and_other_sessions_end(alice: Browser) -> None:
    other = Browser()
    other.sign_in(EMAIL)
    fields = {"password1": NEW, "password2": NEW}
    wrong = alice.submit(CHANGE, oldpassword="wrong", **fields)
    assert "oldpassword" in wrong.context["form"].errors
    assert alice.submit(CHANGE, oldpassword=PASSWORD, **fields).status_code == 302
    assert (alice.email, other.email) == (EMAIL, None)
    assert "password" in str(mail.outbox[-1].subject).lower()
    assert mail.outbox[-1].to == [EMAIL]


@pytest.mark.usefixtures("one_window")
def test_who_has_a_session_cannot_guess_the_password(alice: Browser) -> None:
    fields = {"password1": NEW, "password2": NEW}
    answers = [alice.submit(CHANGE, oldpassword=str(number), **fields) for number in range(11)]
    assert 429 in {answer.status_code for answer in answers}


def test_resets_and_changes_are_recorded_with_who_did_them(alice: Browser, acme: House) -> None:
    fields = {"password1": NEW, "password2": NEW}
    alice.submit(CHANGE, oldpassword=PASSWORD, **fields)
    browser = ask()
    link = link_in_mail()
    ask("nobody@nowhere.example")
    set_by_link(browser, link, PASSWORD)
    with operator_scope("test"):
        seal_now()
        events = AuditEvent.objects.filter(verb__startswith="password").order_by("sequence")
        owner = str(acme.people["owner"].pk)
        assert [(event.verb, event.actor_id, event.record_id) for event in events] == [
            ("password_changed", owner, owner),
            ("password_reset_requested", "", owner),
            ("password_reset", owner, owner),
        ]
        assert {event.personal.address for event in events} == {"192.0.2.1"}
        assert [event.changed_fields for event in events] == [
            {"password": "changed"},
            {},
            {"password": "changed"},
        ]
