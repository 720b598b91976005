"""What would cost a tenant everything takes a proof of the last ten minutes, at every door: whoever
finds an open session has none."""

from collections.abc import Callable
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.sessions.backends.base import SessionBase
from django.test import Client

from tenants.access import session_proofs
from tenants.isolation.scoping import operator_scope
from tenants.models import Tenant
from tests.support.accounts.browser import Browser
from tests.support.two_tenants import PASSWORD, House

pytestmark = pytest.mark.django_db(transaction=True)
PROOFS = "proofs"
REPEAT = "/account/reauthenticate/"


def age(client: Client, seconds: float = session_proofs.RECENT.total_seconds() + 1) -> None:
    """Let what the session has proven be older."""
    session: SessionBase = client.session
    session[PROOFS] = session[PROOFS] | {"own_at": session[PROOFS]["own_at"] - seconds}
    session.save()


def is_closed(house: House) -> bool:
    with operator_scope("test"):
        return Tenant.objects.get(pk=house.tenant.pk).is_closed


def change(method: str, path: str, **body: Any) -> Callable[[Client, str], Any]:
    def send(client: Client, base: str) -> Any:
        csrf = {"x-csrftoken": client.cookies["penstock_csrf"].value}
        send = getattr(client, method)
        return send(f"{base}{path}", body, content_type="application/json", headers=csrf)

    return send


CHANGES = {
    "close": change("post", "/close", name="no name of ours"),
    "export": change("post", "/export"),
    "transfer": change("post", "/transfer", user_id=0),
    "sign-on": change("patch", "/sign-on"),
    "sign-on off": change("delete", "/sign-on"),
    "a mail domain": change("post", "/mail-domains", domain="not a domain"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_api_takes_nothing_of_an_old_proof(name: str, alice: Browser, acme: House) -> None:
    base = f"/api/v1/tenants/{acme.tenant.pk}"
    assert _code(CHANGES[name](alice.http, base)) != "recent_sign_in_required"
    age(alice.http)
    answer = CHANGES[name](alice.http, base)
    assert (answer.status_code, _code(answer)) == (403, "recent_sign_in_required")
    assert alice.http.get(base).status_code == 200
    csrf = {"x-csrftoken": alice.http.cookies["penstock_csrf"].value}
    form = {"email": "owner@acme.example", "password": PASSWORD}
    again = alice.http.post("/api/v1/session", form, "application/json", headers=csrf)
    assert again.status_code == 200
    assert _code(CHANGES[name](alice.http, base)) != "recent_sign_in_required"


def _code(answer: Any) -> str | None:
    is_error = answer.status_code >= 400
    return str(answer.json()["error"]["code"]) if is_error else None


def test_a_page_does_what_was_asked_for_once_it_is_proven(alice: Browser, acme: House) -> None:
    close = f"/t/{acme.tenant.pk}/settings/close"
    age(alice.http)
    asked = alice.submit(close, confirm_name=acme.tenant.name)
    assert asked["Location"] == f"{REPEAT}?next={close.replace('/', '%2F')}"
    wrong = alice.submit(asked["Location"], password="not that")
    assert wrong.status_code == 200 and not is_closed(acme)
    done = alice.submit(asked["Location"], password=PASSWORD)
    assert "is closed" in done.content.decode()
    assert is_closed(acme)


def test_a_fresh_proof_is_asked_for_nothing(alice: Browser, acme: House) -> None:
    close = f"/t/{acme.tenant.pk}/settings/close"
    age(alice.http, session_proofs.RECENT.total_seconds() - 60)
    alice.submit(close, confirm_name=acme.tenant.name)
    assert is_closed(acme)


def test_what_costs_less_takes_none(alice: Browser, acme: House) -> None:
    age(alice.http)
    for path in ("", "settings", "settings/export", "settings/close", "audit/export.csv"):
        assert alice.get(f"/t/{acme.tenant.pk}/{path}").status_code == 200
    csrf = {"x-csrftoken": alice.http.cookies["penstock_csrf"].value}
    made = alice.http.post(
        f"/api/v1/tenants/{acme.tenant.pk}/projects",
        {"name": "Another"},
        "application/json",
        headers=csrf,
    )
    assert made.status_code == 201


def test_a_key_is_no_session(acme: House) -> None:
    key = acme.issue(scopes=["admin"])
    answer = Client().post(
        f"/api/v1/tenants/{acme.tenant.pk}/export",
        content_type="application/json",
        headers={"authorization": f"Bearer {key}"},
    )
    assert answer.status_code == 200


def test_whoever_has_a_second_factor_proves_it_by_that(alice: Browser, acme: House) -> None:
    Authenticator.objects.create(
        user=acme.people["owner"], type=Authenticator.Type.TOTP, data={"secret": "no secret"}
    )
    age(alice.http)
    page = f"/t/{acme.tenant.pk}/settings/export"
    asked = alice.submit(page)
    assert asked["Location"].startswith("/account/2fa/reauthenticate/?next=")
    assert alice.get(REPEAT)["Location"].startswith("/account/2fa/reauthenticate/")
    assert alice.send(REPEAT, password=PASSWORD).status_code == 302
    assert alice.submit(page)["Location"].startswith("/account/2fa/reauthenticate/")


def test_a_session_that_has_proven_nothing_opens_nothing(alice: Browser, acme: House) -> None:
    session = alice.http.session
    del session[PROOFS]
    session.save()
    assert alice.get(f"/t/{acme.tenant.pk}/").status_code == 403
    assert alice.get(f"/api/v1/tenants/{acme.tenant.pk}").status_code == 403
    assert alice.get("/admin/pages/").status_code == 302
