"""The second factor: set up on a page, asked for at every door, each code once."""

import json
import re
import time
from types import SimpleNamespace

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import format_hotp_value, hotp_value
from django.test import Client
from pytest_django.fixtures import Settings

from tenants.access import sign_in
from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent, User
from tests.support.accounts.browser import LOGIN, Browser
from tests.support.two_tenants import PASSWORD, House

# allauth tells of a new authenticator once it is committed.
pytestmark = pytest.mark.django_db(transaction=True)
EMAIL = "owner@acme.example"
ACTIVATE = "/account/2fa/totp/activate/"
AUTHENTICATE = "/account/2fa/authenticate/"


class App:
    """An authenticator app. `wait` lets its next code come."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = time.time()
        self._patch = monkeypatch
        self.secret = ""
        self.wait()

    def wait(self) -> None:
        self._now += 30
        clock = SimpleNamespace(time=lambda: self._now)
        self._patch.setattr("allauth.mfa.totp.internal.auth.time", clock)

    @property
    def code(self) -> str:
        return str(format_hotp_value(hotp_value(self.secret, int(self._now // 30))))


@pytest.fixture
def app(alice: Browser, monkeypatch: pytest.MonkeyPatch) -> App:
    """Set up by Alice."""
    return set_up_app(alice, monkeypatch)


def set_up_app(alice: Browser, monkeypatch: pytest.MonkeyPatch) -> App:
    alice.submit("/account/reauthenticate/", password=PASSWORD)
    app = App(monkeypatch)
    page = alice.get(ACTIVATE).content.decode()
    found = re.search(r"Secret: <code>(\w+)</code>", page)
    assert found is not None
    app.secret = found[1]
    token = alice.http.cookies["penstock_csrf"].value
    answer = alice.http.post(ACTIVATE, {"code": app.code, "csrfmiddlewaretoken": token})
    assert answer["Location"] == "/account/2fa/recovery-codes/"
    return app


@pytest.fixture
def recovery_codes(alice: Browser, app: App) -> list[str]:
    page = alice.get("/account/2fa/recovery-codes/").content.decode()
    return list(dict.fromkeys(re.findall(r"\b\d{8}\b", page)))


def by_page(code: str) -> bool:
    browser = Browser()
    if browser.sign_in(EMAIL)["Location"] != AUTHENTICATE:
        return True
    assert browser.email is None
    browser.submit(AUTHENTICATE, code=code)
    return browser.email == EMAIL


def by_api(code: str) -> bool:
    body = {"email": EMAIL, "password": PASSWORD} | ({"code": code} if code else {})
    answer = Client().post("/api/v1/session", body, content_type="application/json")
    if answer.status_code == 401:
        expected = "wrong_second_factor" if code else "second_factor_required"
        assert answer.json()["error"]["code"] == expected
    return answer.status_code == 200


def by_admin(code: str) -> bool:
    form = {"username": EMAIL, "password": PASSWORD, "code": code}
    return Client().post("/admin/login/", form).status_code == 302


DOORS = (by_page, by_api, by_admin)


@pytest.fixture(autouse=True)
def _owner_is_an_operator_too(acme: House) -> None:
    acme.people["owner"].is_staff = True
    acme.people["owner"].save()


@pytest.mark.parametrize("door", DOORS)
def test_a_code_is_asked_for_at_every_door(app: App, door: object) -> None:
    app.wait()
    assert not door("")  # type: ignore[operator]
    assert not door("000000")  # type: ignore[operator]
    assert door(app.code)  # type: ignore[operator]


@pytest.mark.parametrize("first", DOORS)
@pytest.mark.parametrize("second", DOORS)
def test_a_code_works_once_at_all_doors_together(app: App, first: object, second: object) -> None:
    app.wait()
    assert first(app.code)  # type: ignore[operator]
    assert not second(app.code)  # type: ignore[operator]
    app.wait()
    assert second(app.code)  # type: ignore[operator]


def test_the_code_that_set_it_up_signs_nobody_in(app: App) -> None:
    assert not any(door(app.code) for door in DOORS)


@pytest.mark.parametrize("door", DOORS)
def test_a_recovery_code_works_once(recovery_codes: list[str], door: object) -> None:
    assert len(recovery_codes) == 10
    assert door(recovery_codes[0])  # type: ignore[operator]
    assert not any(each(recovery_codes[0]) for each in DOORS)
    assert door(recovery_codes[1])  # type: ignore[operator]


def test_recovery_codes_are_shown_once(alice: Browser, recovery_codes: list[str]) -> None:
    alice.get("/account/")
    shown = alice.get("/account/2fa/recovery-codes/").content.decode()
    assert not [code for code in recovery_codes if code in shown]


@pytest.mark.usefixtures("one_window")
def test_codes_are_counted_together_at_all_doors(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sign_in, "CODES_OF_AN_ACCOUNT", "3/h")
    app.wait()
    for door in DOORS:
        assert not door("000000")
    assert not by_page(app.code)
    assert not by_admin(app.code)
    body = {"email": EMAIL, "password": PASSWORD, "code": app.code}
    answer = Client().post("/api/v1/session", body, content_type="application/json")
    assert (answer.status_code, answer["Retry-After"]) == (429, "3600")


def test_secrets_are_not_in_the_database_as_they_are(
    app: App, recovery_codes: list[str], settings: Settings
) -> None:
    kept = json.dumps(list(Authenticator.objects.values_list("data", flat=True)))
    assert app.secret not in kept
    assert not [code for code in recovery_codes if code in kept]
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another-secret-key-of-the-tests-" + "t" * 20
    app.wait()
    assert by_api(app.code)


def test_an_operator_without_one_sees_nothing_where_the_address_is_https(
    acme: House, settings: Settings
) -> None:
    signed_in = Client()
    signed_in.force_login(acme.people["owner"])
    assert signed_in.get("/admin/pages/").status_code == 200
    settings.PENSTOCK_OPERATORS_NEED_SECOND_FACTOR = True
    assert signed_in.get("/admin/pages/").status_code == 302
    form = {"username": EMAIL, "password": PASSWORD}
    refused = Client().post("/admin/login/", form)
    assert refused.context["form"].has_error("__all__", "second_factor_missing")
    assert Browser().sign_in(EMAIL)["Location"] == "/t/"


def test_an_operators_session_from_before_has_not_proven_it(
    alice: Browser, app: App, acme: House, globex_house: House, settings: Settings
) -> None:
    """At all doors; that in which it was set up has."""
    User.objects.filter(pk=acme.people["owner"].pk).update(is_superuser=True)
    reports = f"/api/v1/usage?tenant_id={globex_house.tenant.pk}"
    before = Client()
    before.force_login(acme.people["owner"])
    session = before.session
    session["proofs"] = session["proofs"] | {"has_second_factor": False}
    session.save()
    settings.PENSTOCK_OPERATORS_NEED_SECOND_FACTOR = True
    assert before.get("/admin/pages/").status_code == 302
    assert alice.get("/admin/pages/").status_code == 200
    assert [each.get(reports).status_code for each in (before, alice.http)] == [404, 200]


def test_setting_one_up_ends_the_other_sessions(
    alice: Browser, acme: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, other = Browser("192.0.2.2"), Browser("192.0.2.3")
    elsewhere.sign_in(EMAIL)
    other.sign_in("admin@acme.example")
    set_up_app(alice, monkeypatch)
    assert (alice.email, elsewhere.email, other.email) == (EMAIL, None, "admin@acme.example")


def test_an_operator_with_one_gets_in(app: App, settings: Settings) -> None:
    settings.PENSTOCK_OPERATORS_NEED_SECOND_FACTOR = True
    app.wait()
    client = Client()
    form = {"username": EMAIL, "password": PASSWORD, "code": app.code}
    assert client.post("/admin/login/", form).status_code == 302
    assert client.get("/admin/pages/").status_code == 200


def test_who_has_only_the_password_cannot_turn_it_off(app: App, acme: House) -> None:
    browser = Browser()
    browser.sign_in(EMAIL)
    off = "/account/2fa/totp/deactivate/"
    assert browser.get(off)["Location"].startswith(LOGIN)
    assert browser.get(ACTIVATE).status_code == 302
    assert Authenticator.objects.filter(user=acme.people["owner"]).count() == 2


def test_what_is_changed_and_guessed_is_recorded(alice: Browser, app: App, acme: House) -> None:
    app.wait()
    for door in DOORS:
        door("000000")
    assert alice.submit("/account/2fa/totp/deactivate/").status_code == 302
    owner = str(acme.people["owner"].pk)
    with operator_scope("test"):
        seal_now()
        events = AuditEvent.objects.filter(verb__startswith="second").order_by("sequence")
        assert {event.record_id for event in events} == {owner}
        verbs = [event.verb.removeprefix("second_factor_") for event in events]
        assert sorted(verbs) == ["added"] * 2 + ["failed"] * 3 + ["removed"] * 2
    assert by_page("")
