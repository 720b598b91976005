"""Signing in and out by the pages, and what all three doors have in common."""

import pytest
from django.test import Client

from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent
from tests.support.accounts.browser import LOGIN, Browser
from tests.support.accounts.same_work import Work, work_of
from tests.support.two_tenants import PASSWORD, House

EMAIL = "owner@acme.example"
SESSION = "/api/v1/session"
OURS = "/account/password/change/"


def by_page(email: str, password: str, address: str = "192.0.2.1") -> int:
    return int(Browser(address).sign_in(email, password).status_code)


def by_api(email: str, password: str, address: str = "192.0.2.1") -> int:
    client = Client(REMOTE_ADDR=address)
    body = {"email": email, "password": password}
    return client.post(SESSION, body, content_type="application/json").status_code


def by_admin(email: str, password: str, address: str = "192.0.2.1") -> int:
    client = Client(REMOTE_ADDR=address)
    return client.post("/admin/login/", {"username": email, "password": password}).status_code


DOORS = (by_page, by_api, by_admin)


@pytest.mark.usefixtures("acme")
def test_a_person_signs_in_by_email_in_any_case_and_out() -> None:
    browser = Browser()
    answer = browser.sign_in("Owner@Acme.example")
    assert (answer.status_code, answer["Location"]) == (302, "/t/")
    assert browser.get("/account/").status_code == 200
    assert browser.email == EMAIL
    assert browser.submit("/account/logout/").status_code == 302
    assert browser.email is None
    assert browser.get("/account/")["Location"] == f"{LOGIN}?next=/account/"


def test_wrong_password_unknown_address_and_closed_account_are_answered_alike(acme: House) -> None:
    closed, without = acme.people["viewer"], acme.people["billing"]
    closed.is_active = False
    closed.save()
    without.set_unusable_password()
    without.save()
    browsers = [Browser(f"192.0.2.{number}") for number in range(4)]
    tried = [
        (EMAIL, "wrong"),
        ("nobody@nowhere.example", PASSWORD),
        (closed.email, PASSWORD),
        (without.email, PASSWORD),
    ]
    answers = [
        browser.sign_in(email, password)
        for browser, (email, password) in zip(browsers, tried, strict=True)
    ]
    assert {answer.status_code for answer in answers} == {200}
    told = [list(answer.context["form"].non_field_errors()) for answer in answers]
    assert told[0] and all(each == told[0] for each in told)
    pages = [
        answer.content.decode().replace(email, "").replace(_token(answer), "")
        for answer, (email, _) in zip(answers, tried, strict=True)
    ]
    assert len(set(pages)) == 1


def _token(answer: object) -> str:
    return str(answer.context["csrf_token"])  # type: ignore[attr-defined]


@pytest.mark.parametrize("door", DOORS)
def test_a_wrong_password_costs_the_same_whether_the_account_exists_or_not(
    acme: House, monkeypatch: pytest.MonkeyPatch, door: object
) -> None:
    closed = acme.people["viewer"]
    closed.is_active = False
    closed.save()
    by_page(EMAIL, "wrong")  # what is made once is made

    def work(email: str) -> Work:
        return work_of(lambda: door(email, "wrong"), monkeypatch)  # type: ignore[operator]

    known = work(EMAIL)
    assert known.hashes == 1
    assert known == work("nobody@nowhere.example") == work(closed.email)


@pytest.mark.usefixtures("one_window", "acme")
@pytest.mark.parametrize("last", DOORS)
def test_attempts_are_counted_together_at_all_doors(last: object) -> None:
    for number in range(30):
        # From an address each: it is the account that is guessed at.
        DOORS[number % 3](EMAIL.upper() if number % 2 else EMAIL, "wrong", f"192.0.2.{number}")
    assert last(EMAIL, PASSWORD, "192.0.2.99") == 429  # type: ignore[operator]


@pytest.mark.usefixtures("one_window", "acme")
@pytest.mark.parametrize("last", DOORS)
def test_one_stranger_locks_nobody_out(last: object) -> None:
    """From an address, and from a whole /64 of them."""
    for number in range(100):
        stranger = f"2001:db8:0:1::{number:x}" if number % 2 else "203.0.113.66"
        DOORS[number % 3](EMAIL, "wrong", stranger)
    assert last(EMAIL, PASSWORD, "192.0.2.99") != 429  # type: ignore[operator]


@pytest.mark.usefixtures("one_window", "acme")
@pytest.mark.parametrize("door", [LOGIN, "/admin/login/"])
def test_many_strangers_lock_nobody_out_of_a_browser_that_signed_in_before(door: str) -> None:
    known = Client(REMOTE_ADDR="192.0.2.99")
    right = {"login": EMAIL, "username": EMAIL, "password": PASSWORD}
    assert known.post(LOGIN, right).status_code == 302
    known.post("/account/logout/")
    for number in range(60):
        by_page(EMAIL, "wrong", f"198.51.100.{number}")
        by_page(EMAIL, "wrong", "192.0.2.99")
    assert by_page(EMAIL, PASSWORD, "203.0.113.9") == 429
    assert known.post(door, right).status_code != 429
    # What it may try is bounded too, and it opens no other account.
    other = right | {"login": "developer@acme.example", "username": "developer@acme.example"}
    assert known.post(door, other).status_code == 429
    guessing = [known.post(door, right | {"password": "wrong"}).status_code for _ in range(11)]
    assert guessing[-1] == 429


@pytest.mark.usefixtures("one_window", "acme")
def test_no_header_makes_an_address_another() -> None:
    for number in range(20):
        Client().post(
            LOGIN,
            {"login": f"{number}@acme.example", "password": "wrong"},
            headers={"x-forwarded-for": f"198.51.100.{number}"},
        )
    answer = Client().post(
        LOGIN, {"login": EMAIL, "password": PASSWORD}, headers={"x-forwarded-for": "203.0.113.1"}
    )
    assert answer.status_code == 429
    assert answer["Retry-After"] == "60"


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    "elsewhere",
    [
        "//evil.example/",
        "https://evil.example/",
        "http:evil.example",
        "///evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "http://testserver@evil.example/",
        "\x08//evil.example",
    ],
)
def test_nobody_is_sent_to_another_host(elsewhere: str) -> None:
    browser = Browser()
    for answer in (
        browser.sign_in(EMAIL, next=elsewhere),
        browser.http.get(LOGIN, {"next": elsewhere}),  # signed in already
        browser.http.get("/account/logout/", {"next": elsewhere}),
    ):
        if answer.status_code == 302:
            assert answer["Location"].startswith(("/account/", "/t/"))
        assert "evil.example" not in answer.get("Location", "")
    assert browser.submit("/account/logout/", next=elsewhere)["Location"] == LOGIN


@pytest.mark.usefixtures("acme")
def test_somebody_who_has_to_sign_in_gets_where_they_wanted_to() -> None:
    browser = Browser()
    asked = browser.get(OURS)["Location"]
    assert asked == f"{LOGIN}?next={OURS}"
    assert OURS in browser.get(asked).content.decode()
    assert browser.sign_in(EMAIL, next=OURS)["Location"] == OURS


@pytest.mark.usefixtures("acme")
@pytest.mark.parametrize(
    "path", [LOGIN, "/account/logout/", "/account/password/reset/", "/account/email/", OURS]
)
def test_another_site_can_send_no_form(path: str) -> None:
    browser = Browser()
    browser.sign_in(EMAIL)
    fields = {"login": EMAIL, "password": PASSWORD, "email": EMAIL}
    assert browser.http.post(path, fields).status_code == 403
    assert browser.email == EMAIL


@pytest.mark.usefixtures("acme")
def test_a_session_that_was_there_before_is_not_the_one_that_is_signed_in() -> None:
    victim = Browser()
    victim.get(LOGIN)
    victim.submit("/account/password/reset/", email="nobody@nowhere.example")
    victim.http.cookies["penstock_session"] = planted = "a" * 32
    victim.sign_in(EMAIL)
    assert victim.email == EMAIL
    assert victim.http.cookies["penstock_session"].value != planted
    attacker = Browser()
    attacker.http.cookies["penstock_session"] = planted
    assert attacker.email is None


@pytest.mark.usefixtures("acme")
def test_a_session_ends_where_it_is_signed_out(alice: Browser) -> None:
    stolen = Browser()
    stolen.http.cookies["penstock_session"] = alice.http.cookies["penstock_session"].value
    assert stolen.email == EMAIL
    alice.submit("/account/logout/")
    assert stolen.email is None


def test_signing_in_failing_and_signing_out_are_recorded_with_the_address(acme: House) -> None:
    browser = Browser("192.0.2.7")
    browser.sign_in(EMAIL, "wrong")
    browser.sign_in("a password by mistake@acme.example", "wrong")
    browser.sign_in(EMAIL)
    browser.submit("/account/logout/")
    with operator_scope("test"):
        seal_now()
        events = AuditEvent.objects.filter(verb__contains="sign").order_by("sequence")
        assert [event.verb for event in events] == ["sign_in_failed", "signed_in", "signed_out"]
        assert {event.record_id for event in events} == {str(acme.people["owner"].pk)}
        assert {event.personal.address for event in events} == {"192.0.2.7"}
        assert [event.actor_kind for event in events] == ["unknown", "user", "user"]
