"""A provider that lies: nobody is signed in, one plain sentence, the reason in the audit log."""

import threading
import time

import pytest
from pytest_django import Settings

from tenants.models import User
from tests.support.accounts.browser import Browser
from tests.support.sign_on.arriving import address_at_provider, answer_of, refusals
from tests.support.sign_on.lying_provider import LyingProvider, a_lying_provider
from tests.support.two_tenants import House

pytestmark = pytest.mark.django_db
JSON = {"Content-Type": "application/json"}

LIES: dict[str, tuple[dict[str, object], str]] = {
    "another issuer": ({"claims": {"iss": "https://login.globex.example"}}, "wrong_issuer"),
    "an issuer with a slash more": ({"claims": {"iss": "slash"}}, "wrong_issuer"),
    "another audience": ({"claims": {"aud": "penstock-of-globex"}}, "wrong_audience"),
    "for several, by nobody": (
        {"claims": {"aud": ["penstock-of-acme", "other"]}},
        "wrong_audience",
    ),
    "by another party": ({"claims": {"azp": "other"}}, "wrong_audience"),
    "another nonce": ({"claims": {"nonce": "of another browser"}}, "wrong_nonce"),
    "a nonce that is no text": ({"claims": {"nonce": 7}}, "wrong_nonce"),
    "no nonce": ({"claims": {"nonce": None}}, "bad_token"),
    "no subject": ({"claims": {"sub": None}}, "bad_token"),
    "an empty subject": ({"claims": {"sub": ""}}, "bad_token"),
    "a subject of controls": ({"claims": {"sub": "a\x00b"}}, "bad_token"),
    "a long subject": ({"claims": {"sub": "a" * 256}}, "bad_token"),
    "no end": ({"claims": {"exp": None}}, "bad_token"),
    "expired": ({"claims": {"exp": 1_600_000_000}}, "wrong_time"),
    "not yet": ({"claims": {"nbf": 4_000_000_000}}, "wrong_time"),
    "issued tomorrow": ({"claims": {"iat": 4_000_000_000, "exp": 4_000_000_300}}, "wrong_time"),
    "another key": ({"signing_key": "another"}, "wrong_key"),
    "an unknown key": ({"headers": {"kid": "2"}}, "wrong_key"),
    "signed by the secret": ({"algorithm": "HS256"}, "wrong_algorithm"),
    "signed by nobody": ({"algorithm": "none"}, "wrong_algorithm"),
    "another algorithm": ({"algorithm": "RS512", "keys_alg": "RS256"}, "wrong_key"),
    "an unverified address": ({"claims": {"email_verified": False}}, "unverified_email"),
    "an address of which nothing is said": (
        {"claims": {"email_verified": None}},
        "unverified_email",
    ),
    "verified in words": ({"claims": {"email_verified": "true"}}, "unverified_email"),
    "no address": ({"claims": {"email": None}}, "unverified_email"),
    "an address that is none": ({"claims": {"email": "acme.example"}}, "unverified_email"),
    "a foreign address": ({"claims": {"email": "new@globex.example"}}, "foreign_domain"),
    "an address below the domain": ({"claims": {"email": "a@sub.acme.example"}}, "foreign_domain"),
    "two addresses": ({"claims": {"email": "a@b@acme.example"}}, "unverified_email"),
    "discovery of another": ({"discovery": {"issuer": "https://globex.example"}}, "wrong_issuer"),
}  # fmt: skip


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_signs_nobody_in(
    lie: str, browser: Browser, acme: House, provider: LyingProvider
) -> None:
    told, reason = LIES[lie]
    address = address_at_provider(browser, acme.tenant)
    for name, value in told.items():
        if name == "keys_alg":
            provider.answers["/keys"] = _keys_with(provider, str(value))
        else:
            setattr(provider, name, value)
    if provider.claims.get("iss") == "slash":
        provider.claims["iss"] = f"{provider.issuer}/"
    answer = browser.get(f"/sso/{acme.tenant.pk}/callback?{provider.approve(address)}")
    assert (answer.status_code, browser.email) == (403, None)
    assert refusals(acme.tenant.pk) == [reason]
    assert not User.objects.filter(name="New Person").exists()


def _keys_with(provider: LyingProvider, algorithm: str) -> tuple[int, dict[str, str], bytes]:
    import json

    keys = json.loads(provider.answer("/keys", {})[2])
    keys["keys"][0]["alg"] = algorithm
    return 200, JSON, json.dumps(keys).encode()


DISCOVERY = "/.well-known/openid-configuration"
BAD_ANSWERS: dict[str, tuple[str, tuple[int, dict[str, str], bytes], str]] = {
    "an error": ("/token", (500, JSON, b"{}"), "bad_answer"),
    "no json": ("/token", (200, JSON, b"<html>"), "bad_answer"),
    "no object": ("/token", (200, JSON, b"7"), "bad_answer"),
    "a list": ("/token", (200, JSON, b'["access_token"]'), "bad_answer"),
    "no type": ("/token", (200, {}, b"nothing"), "bad_answer"),
    "no id token": ("/token", (200, JSON, b'{"access_token": "a"}'), "bad_token"),
    "an id token that is none": (
        "/token",
        (200, JSON, b'{"access_token": "a", "id_token": "a.b.c"}'),
        "bad_token",
    ),
    "a lifetime that is none": (
        "/token",
        (200, JSON, b'{"access_token": "a", "expires_in": "soon", "id_token": 7}'),
        "bad_token",
    ),
    "too much": ("/token", (200, JSON, b" " * 300_000), "provider_unreachable"),
    "keys of too much": ("/keys", (200, JSON, b" " * 300_000), "provider_unreachable"),
    "keys that are a list": ("/keys", (200, JSON, b"[]"), "bad_answer"),
    "keys of no list": ("/keys", (200, JSON, b'{"keys": 7}'), "bad_answer"),
    "keys of nothing": ("/keys", (200, JSON, b'{"keys": [7, {}]}'), "wrong_key"),
    "bad keys": ("/keys", (200, JSON, b'{"keys": [{"kid": "1", "kty": "RSA"}]}'), "wrong_key"),
    "a discovery of no json": (DISCOVERY, (200, JSON, b"["), "bad_answer"),
    "a discovery of a list": (DISCOVERY, (200, JSON, b"[]"), "bad_answer"),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD_ANSWERS)
def test_a_bad_answer_is_refused(
    bad: str, browser: Browser, acme: House, provider: LyingProvider
) -> None:
    path, answer, reason = BAD_ANSWERS[bad]
    query = provider.approve(address_at_provider(browser, acme.tenant))
    provider.answers[path] = answer
    refused = browser.get(f"/sso/{acme.tenant.pk}/callback?{query}")
    assert (refused.status_code, browser.email) == (403, None)
    assert refusals(acme.tenant.pk) == [reason]


@pytest.mark.parametrize("path", [DISCOVERY, "/keys", "/token"])
def test_a_redirect_is_not_followed(
    path: str, browser: Browser, acme: House, provider: LyingProvider
) -> None:
    with a_lying_provider() as inner:
        query = provider.approve(address_at_provider(browser, acme.tenant))
        provider.answers[path] = (307, {"Location": f"{inner.issuer}{path}"}, b"")
        refused = browser.get(f"/sso/{acme.tenant.pk}/callback?{query}")
        assert (refused.status_code, inner.paths) == (403, [])
    assert refusals(acme.tenant.pk) == ["provider_unreachable"]


@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "jwks_uri"])
@pytest.mark.parametrize(
    "address",
    ["http://10.0.0.1/", "https://10.0.0.1/", "file:///etc/passwd", "javascript:alert(1)", 7, None],
)
def test_an_endpoint_in_a_private_network_is_not_connected_to(
    name: str,
    address: object,
    browser: Browser,
    acme: House,
    provider: LyingProvider,
) -> None:
    provider.discovery = {name: address}
    page = browser.submit(f"/sso/{acme.tenant.pk}/")
    if page.status_code == 200:
        # Only where it is asked, the network is looked at.
        query = f"code=a&state={page.context['address'].partition('state=')[2].partition('&')[0]}"
        if name == "authorization_endpoint":
            return
        provider.answers["/token"] = provider.answers.get("/token") or (
            200, JSON, b'{"access_token": "a", "id_token": "a.b.c"}',
        )  # fmt: skip
        page = browser.get(f"/sso/{acme.tenant.pk}/callback?{query}")
    assert page.status_code == 403
    assert refusals(acme.tenant.pk) == ["provider_address_refused"]


def test_loopback_is_refused_where_it_is_not_allowed(
    browser: Browser, acme: House, provider: LyingProvider, settings: Settings
) -> None:
    settings.PENSTOCK_WEBHOOK_ALLOW_LOOPBACK = False
    assert browser.submit(f"/sso/{acme.tenant.pk}/").status_code == 403
    assert refusals(acme.tenant.pk) == ["provider_address_refused"]
    assert provider.paths == []


def test_an_answer_counts_once(browser: Browser, acme: House, provider: LyingProvider) -> None:
    query = provider.approve(address_at_provider(browser, acme.tenant))
    callback = f"/sso/{acme.tenant.pk}/callback?{query}"
    assert browser.get(callback).status_code == 302
    assert browser.get(callback).status_code == 403
    assert refusals(acme.tenant.pk) == ["unknown_state"]


def test_an_answer_counts_in_the_browser_that_asked(
    browser: Browser, acme: House, provider: LyingProvider
) -> None:
    query = provider.approve(address_at_provider(browser, acme.tenant))
    other = Browser()
    assert other.get(f"/sso/{acme.tenant.pk}/callback?{query}").status_code == 403
    assert other.email is None
    assert provider.exchanges == []


def test_an_old_token_answers_no_new_question(
    browser: Browser, acme: House, provider: LyingProvider
) -> None:
    assert answer_of(browser, acme.tenant, provider).status_code == 302
    provider.repeated = provider.id_tokens[0]
    other = Browser()
    assert answer_of(other, acme.tenant, provider).status_code == 403
    assert other.email is None
    assert refusals(acme.tenant.pk) == ["wrong_nonce"]


@pytest.mark.parametrize(
    ("error", "reason"), [("access_denied", "cancelled"), ("server_error", "provider_error")]
)
def test_an_error_of_the_provider_is_told(
    error: str, reason: str, browser: Browser, acme: House, provider: LyingProvider
) -> None:
    state = provider.approve(address_at_provider(browser, acme.tenant)).partition("state=")[2]
    answer = browser.get(f"/sso/{acme.tenant.pk}/callback?error={error}&state={state}")
    assert answer.status_code == 403
    assert refusals(acme.tenant.pk) == [reason]


def test_an_inactive_account_is_not_signed_in(
    browser: Browser, acme: House, provider: LyingProvider
) -> None:
    User.objects.filter(email="viewer@acme.example").update(is_active=False)
    provider.claims = {"email": "viewer@acme.example"}
    assert answer_of(browser, acme.tenant, provider).status_code == 403
    assert refusals(acme.tenant.pk) == ["inactive_account"]


@pytest.mark.usefixtures("one_window")
def test_strangers_fill_no_audit_log(
    browser: Browser, acme: House, provider: LyingProvider
) -> None:
    statuses = [
        browser.get(f"/sso/{acme.tenant.pk}/callback?state={number}&code=a").status_code
        for number in range(40)
    ]
    assert set(statuses) == {403, 429}
    assert refusals(acme.tenant.pk) == ["unknown_state"]


def test_a_silent_provider_holds_nobody_up(
    browser: Browser,
    acme: House,
    provider: LyingProvider,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tenants.access.sign_on.provider_http.TOTAL_SECONDS", 0.1)
    honest = provider.answer
    has_left = threading.Event()

    def late(path: str, form: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        has_left.wait(timeout=10)
        return honest(path, form)

    monkeypatch.setattr(provider, "answer", late)
    started = time.monotonic()
    assert browser.submit(f"/sso/{acme.tenant.pk}/").status_code == 403
    has_left.set()
    assert time.monotonic() - started < 5
    assert refusals(acme.tenant.pk) == ["provider_unreachable"]
