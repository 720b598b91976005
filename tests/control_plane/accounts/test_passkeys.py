"""Passkeys: added on a page, and used there as the second factor or as both."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from control_plane.accounts import passkeys
from cryptography.hazmat.primitives.asymmetric import ec
from django.test import Client
from fido2.utils import websafe_encode
from pytest_django.fixtures import Settings

from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent, User
from tests.support.accounts.browser import Browser
from tests.support.accounts.passkey import (
    ADD,
    SIGN_IN,
    Device,
    add,
    challenge_of,
    options_of,
    sign_in,
)
from tests.support.two_tenants import PASSWORD, House

# allauth tells of a new authenticator once it is committed.
pytestmark = pytest.mark.django_db(transaction=True)
EMAIL = "owner@acme.example"
INDEX = "/account/2fa/"
AUTHENTICATE = "/account/2fa/authenticate/"
ORIGIN = "https://penstock.example"


@pytest.fixture(autouse=True)
def _public_address(settings: Settings) -> None:
    settings.PENSTOCK_PUBLIC_URL = ORIGIN


@pytest.fixture
def device() -> Device:
    return Device(origin=ORIGIN, rp_id="penstock.example")


@pytest.fixture
def alice(alice: Browser) -> Browser:
    """She has given her password a moment ago."""
    alice.submit("/account/reauthenticate/", password=PASSWORD)
    return alice


@pytest.fixture
def passkey(alice: Browser, device: Device) -> Device:
    answer, device = add(alice, device)
    assert answer["Location"] == "/account/2fa/recovery-codes/"
    return device


def kept(house: House, email: str = "owner") -> int:
    passkeys_of_all = Authenticator.objects.filter(type=Authenticator.Type.WEBAUTHN)
    return int(passkeys_of_all.filter(user=house.people[email]).count())


def events() -> list[AuditEvent]:
    with operator_scope("test"):
        seal_now()
        return list(AuditEvent.objects.select_related("personal").order_by("sequence"))


# Adding and removing ------------------------------------------------------------------------------


def test_a_passkey_is_listed_with_its_name_and_when_it_was_used(
    alice: Browser, passkey: Device
) -> None:
    page = alice.get(INDEX).content.decode()
    assert "laptop" in page and "not used yet" in page
    sign_in(Browser(), passkey)
    page = alice.get(INDEX).content.decode()
    assert "last used" in page and "not used yet" not in page


def test_the_first_comes_with_recovery_codes(alice: Browser, passkey: Device) -> None:
    del passkey
    page = alice.get("/account/2fa/recovery-codes/")
    assert len(page.context["unused_codes"]) == 10


def test_a_passkey_is_removed_by_its_owner_who_confirms_it(
    alice: Browser, passkey: Device, acme: House
) -> None:
    number = Authenticator.objects.get(type=Authenticator.Type.WEBAUTHN).pk
    remove = f"/account/2fa/passkeys/{number}/remove/"
    viewer = Browser("192.0.2.2")
    viewer.sign_in("viewer@acme.example")
    viewer.submit("/account/reauthenticate/", password=PASSWORD)
    assert viewer.send(remove).status_code == 404
    unconfirmed = Browser("192.0.2.3")
    sign_in(unconfirmed, passkey)
    assert unconfirmed.send(remove)["Location"].startswith("/account/2fa/reauthenticate/passkey/")
    assert kept(acme) == 1
    assert alice.submit(remove)["Location"] == INDEX
    assert kept(acme) == 0
    stranger = Browser()
    sign_in(stranger, passkey)
    assert stranger.email is None
    assert Browser().sign_in(EMAIL)["Location"] == "/t/"


def test_adding_one_takes_the_password_or_a_passkey_first(acme: House, device: Device) -> None:
    browser = Browser()
    browser.http.force_login(acme.people["owner"])
    assert browser.get(ADD)["Location"].startswith("/account/reauthenticate/")
    browser.submit("/account/reauthenticate/", password=PASSWORD)
    _, device = add(browser, device)
    later = Browser("192.0.2.2")
    later.http.force_login(acme.people["owner"])
    confirm = "/account/2fa/reauthenticate/passkey/"
    options = options_of(later, f"{confirm}?next={ADD}")
    done = later.send(confirm, credential=json.dumps(device.get(options)), next=ADD)
    assert done["Location"] == ADD
    assert later.get(ADD).status_code == 200


def test_a_page_asks_for_a_passkey_that_is_kept_and_verifies_its_owner(alice: Browser) -> None:
    options = options_of(alice, ADD)["publicKey"]
    assert options["rp"]["id"] == "penstock.example"
    assert options["authenticatorSelection"]["residentKey"] == "required"
    assert options["authenticatorSelection"]["userVerification"] == "required"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda device: replace(device, origin="https://evil.example"),
        lambda device: replace(device, origin="https://pages.penstock.example"),
        lambda device: replace(device, origin="http://penstock.example"),
        lambda device: replace(device, cross_origin=True),
        lambda device: replace(device, rp_id="evil.example"),
        lambda device: replace(device, verifies=False),
        lambda device: replace(device, credential_id=b""),
    ],
)
def test_a_passkey_of_another_page_or_without_its_owner_is_not_added(
    alice: Browser, device: Device, acme: House, wrong: Callable[[Device], Device]
) -> None:
    answer, _ = add(alice, wrong(device))
    assert answer.status_code == 200
    assert kept(acme) == 0
    added, _ = add(alice, device)
    assert added.status_code == 302


def test_a_challenge_is_taken_once(alice: Browser, device: Device, acme: House) -> None:
    answer = json.dumps(device.create(options_of(alice, ADD)))
    assert alice.send(ADD, credential=answer).status_code == 302
    assert alice.send(ADD, credential=answer).status_code == 200
    assert kept(acme) == 1


def test_the_same_passkey_is_not_added_twice(alice: Browser, passkey: Device, acme: House) -> None:
    answer, _ = add(alice, passkey)
    assert answer.context["form"].has_error("credential", "known_passkey")
    assert kept(acme) == 1


def test_an_account_has_so_many_and_no_more(
    alice: Browser, device: Device, acme: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passkeys, "MOST_PASSKEYS", 2)
    devices = [replace(device, credential_id=bytes([number]) * 16) for number in range(3)]
    answers = [add(alice, each)[0] for each in devices]
    assert [answer.status_code for answer in answers] == [302, 302, 200]
    assert answers[2].context["form"].has_error("credential", "too_many_passkeys")


def test_what_else_a_browser_sends_is_not_stored(alice: Browser, device: Device) -> None:
    answer = device.create(options_of(alice, ADD)) | {"more": "x" * 1000, "nul": "\0"}
    answer["response"]["publicKey"] = "x" * 1000
    assert alice.send(ADD, credential=json.dumps(answer)).status_code == 302
    stored = Authenticator.objects.get(type=Authenticator.Type.WEBAUTHN).data["credential"]
    assert sorted(stored) == ["id", "rawId", "response", "type"]
    assert sorted(stored["response"]) == ["attestationObject", "clientDataJSON"]


def test_where_the_address_can_have_none_the_page_says_so(
    alice: Browser, settings: Settings
) -> None:
    for address in ("http://penstock.example", "http://127.0.0.1:8000", "https://[::1]:8443"):
        settings.PENSTOCK_PUBLIC_URL = address
        assert ADD not in alice.get(INDEX).content.decode()
        assert SIGN_IN not in Browser().get("/account/login/").content.decode()
    for address in ("http://localhost:8000", "https://penstock.example"):
        settings.PENSTOCK_PUBLIC_URL = address
        assert ADD in alice.get(INDEX).content.decode()
        assert SIGN_IN in Browser().get("/account/login/").content.decode()


# Signing in ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("alice")
def test_a_passkey_alone_signs_in_where_one_wanted_to_go(passkey: Device, acme: House) -> None:
    browser = Browser()
    goal = f"/t/{acme.tenant.id}/projects"
    assert sign_in(browser, passkey, next=goal)["Location"] == goal
    assert browser.email == EMAIL


def test_it_leads_to_no_other_host(passkey: Device) -> None:
    answer = sign_in(Browser(), passkey, next="https://evil.example/")
    assert answer["Location"] == "/t/"


def test_after_the_password_a_passkey_is_asked_for(passkey: Device) -> None:
    browser = Browser()
    assert browser.sign_in(EMAIL)["Location"] == AUTHENTICATE
    assert browser.email is None
    options = options_of(browser, AUTHENTICATE)
    assert len(options["publicKey"]["allowCredentials"]) == 1
    wrong = replace(passkey, key=ec.generate_private_key(ec.SECP256R1()))
    assert browser.send(AUTHENTICATE, credential=json.dumps(wrong.get(options))).status_code == 200
    assert browser.email is None
    options = options_of(browser, AUTHENTICATE)
    browser.send(AUTHENTICATE, credential=json.dumps(passkey.get(options)))
    assert browser.email == EMAIL


def test_a_recovery_code_stands_in_for_it_at_every_door(alice: Browser, passkey: Device) -> None:
    del passkey
    codes = list(alice.get("/account/2fa/recovery-codes/").context["unused_codes"])
    browser = Browser()
    browser.sign_in(EMAIL)
    browser.send(AUTHENTICATE, code=codes[0])
    assert browser.email == EMAIL
    body = {"email": EMAIL, "password": PASSWORD}
    asked = Client().post("/api/v1/session", body, content_type="application/json")
    assert (asked.status_code, asked.json()["error"]["code"]) == (401, "passkey_required")
    used = Client().post(
        "/api/v1/session", body | {"code": codes[0]}, content_type="application/json"
    )
    assert (used.status_code, used.json()["error"]["code"]) == (401, "wrong_second_factor")
    done = Client().post(
        "/api/v1/session", body | {"code": codes[1]}, content_type="application/json"
    )
    assert done.status_code == 200


def test_operators_come_in_with_a_passkey_too(
    passkey: Device, acme: House, settings: Settings
) -> None:
    User.objects.filter(pk=acme.people["owner"].pk).update(is_staff=True)
    settings.PENSTOCK_OPERATORS_NEED_SECOND_FACTOR = True
    form = {"username": EMAIL, "password": PASSWORD}
    refused = Client().post("/admin/login/?next=/admin/tenants/", form)
    assert refused.context["form"].has_error("__all__", "passkey_required")
    assert "/account/login/?next=/admin/tenants/" in refused.content.decode()
    browser = Browser()
    assert sign_in(browser, passkey, next="/admin/")["Location"] == "/admin/"
    assert browser.get("/admin/pages/").status_code == 200


@pytest.mark.parametrize(
    "wrong",
    [
        lambda device: replace(device, origin="https://evil.example"),
        lambda device: replace(device, origin="https://pages.penstock.example"),
        lambda device: replace(device, rp_id="evil.example"),
        lambda device: replace(device, verifies=False),
        lambda device: replace(device, key=ec.generate_private_key(ec.SECP256R1())),
        lambda device: replace(device, credential_id=b"another of sixteen"),
        lambda device: device.of(""),
        lambda device: device.of("bm9ib2R5"),
    ],
)
def test_whoever_lacks_the_device_its_owner_or_our_page_stays_out(
    passkey: Device, wrong: Callable[[Device], Device]
) -> None:
    browser = Browser()
    assert sign_in(browser, wrong(passkey))["Location"] == "/account/login/"
    assert browser.email is None


def test_a_device_signs_nobody_in_but_its_owner(passkey: Device, acme: House) -> None:
    browser = Browser()
    handle = acme.people["viewer"].pk.hex.encode()
    sign_in(browser, passkey.of(websafe_encode(handle)))
    assert browser.email is None


def test_an_answer_is_taken_once_and_from_the_browser_that_was_asked(passkey: Device) -> None:
    browser, thief = Browser(), Browser("192.0.2.2")
    answer = json.dumps(passkey.get(challenge_of(browser)))
    challenge_of(thief)
    thief.send(SIGN_IN, credential=answer)
    assert thief.email is None
    browser.send(SIGN_IN, credential=answer)
    assert browser.email == EMAIL
    browser.submit("/account/logout/")
    browser.send(SIGN_IN, credential=answer)
    assert browser.email is None


def test_somebody_whose_account_is_closed_stays_out(passkey: Device, acme: House) -> None:
    User.objects.filter(pk=acme.people["owner"].pk).update(is_active=False)
    browser = Browser()
    sign_in(browser, passkey)
    assert browser.email is None


@pytest.mark.parametrize(
    "sent",
    [
        "",
        "x",
        "null",
        "7",
        '"text"',
        "[]",
        "{}",
        "[" * 20_000,
        "x" * 100_000,
        '{"rawId": 100000000000, "response": {}}',
        '{"rawId": "AA", "response": []}',
        '{"rawId": "AA", "response": {"userHandle": 100000000000}}',
        '{"rawId": "AA", "response": {"clientDataJSON": "AA", "authenticatorData": "AA"}}',
        '{"rawId": "\\u0000", "response": {"clientDataJSON": "\\u0000"}}',
        '{"rawId": "AA", "response": {"clientDataJSON": "e30", "attestationObject": "n5-fn5-f"}}',
    ],
    ids=lambda sent: sent[:60],
)
def test_what_is_malformed_is_refused_and_breaks_nothing(
    sent: str, alice: Browser, acme: House
) -> None:
    browser = Browser()
    challenge_of(browser)
    assert browser.send(SIGN_IN, credential=sent)["Location"] == "/account/login/"
    alice.get(ADD)
    assert alice.send(ADD, credential=sent).status_code == 200
    assert (browser.email, kept(acme)) == (None, 0)


@pytest.mark.usefixtures("one_window")
def test_attempts_are_counted_with_those_at_the_other_doors(passkey: Device) -> None:
    browser = Browser("192.0.2.50")
    answers = [browser.send(SIGN_IN, credential="{}") for _ in range(20)]
    assert {answer.status_code for answer in answers} == {302}
    refused = sign_in(browser, passkey)
    assert (refused.status_code, refused["Retry-After"]) == (429, "60")
    body = {"email": EMAIL, "password": PASSWORD}
    api = Client(REMOTE_ADDR="192.0.2.50")
    assert api.post("/api/v1/session", body, content_type="application/json").status_code == 429


@pytest.mark.usefixtures("one_window")
def test_nobody_fills_the_table_of_sessions_with_challenges() -> None:
    asked = {"Accept": "application/json"}
    answers: list[Any] = [Client().get(SIGN_IN, headers=asked) for _ in range(41)]
    assert [answer.status_code for answer in answers] == [200] * 40 + [429]
    assert answers[0]["Cache-Control"].find("no-store") >= 0


def test_another_site_can_send_no_answer_for_anybody(passkey: Device) -> None:
    browser = Browser()
    answer = json.dumps(passkey.get(challenge_of(browser)))
    assert browser.http.post(SIGN_IN, {"credential": answer}).status_code == 403


# The record ---------------------------------------------------------------------------------------


def test_what_is_changed_used_and_guessed_is_recorded(
    alice: Browser, passkey: Device, acme: House
) -> None:
    browser = Browser("192.0.2.7")
    browser.sign_in(EMAIL)
    browser.send(AUTHENTICATE, credential='{"rawId": "AA"}')
    sign_in(Browser("192.0.2.8"), replace(passkey, verifies=False))
    sign_in(Browser("192.0.2.9"), passkey)
    number = Authenticator.objects.get(type=Authenticator.Type.WEBAUTHN).pk
    alice.submit(f"/account/2fa/passkeys/{number}/remove/")
    told = [
        (event.verb, event.changed_fields.get("kind"), event.personal.address)
        for event in events()
        if event.record_id == str(acme.people["owner"].pk) and event.verb != "created"
    ]
    assert told == [
        ("signed_in", None, "192.0.2.1"),
        ("second_factor_added", "webauthn", "192.0.2.1"),
        ("second_factor_added", "recovery_codes", "192.0.2.1"),
        ("second_factor_failed", None, "192.0.2.7"),
        ("sign_in_failed", "webauthn", "192.0.2.8"),
        ("signed_in", None, "192.0.2.9"),
        ("second_factor_removed", "webauthn", "192.0.2.1"),
        ("second_factor_removed", "recovery_codes", "192.0.2.1"),
    ]
