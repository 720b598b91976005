"""The list of one's sessions, and signing out everywhere."""

from django.test import Client

from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent
from tests.support.accounts.browser import Browser
from tests.support.two_tenants import PASSWORD, House

EMAIL = "owner@acme.example"
SESSIONS = "/account/sessions/"


def by_api(address: str, user_agent: str = "curl of an intruder") -> Client:
    client = Client(REMOTE_ADDR=address, HTTP_USER_AGENT=user_agent)
    body = {"email": EMAIL, "password": PASSWORD}
    assert client.post("/api/v1/session", body, content_type="application/json").status_code == 200
    return client


def test_sessions_of_all_doors_are_listed_with_address_and_browser(
    alice: Browser, acme: House
) -> None:
    by_api("198.51.100.7")
    viewer = Browser("203.0.113.5")
    viewer.sign_in("viewer@acme.example")
    acme.people["owner"].is_staff = True
    acme.people["owner"].save()
    admin = Client(REMOTE_ADDR="198.51.100.8")
    form = {"username": EMAIL, "password": PASSWORD}
    assert admin.post("/admin/login/", form).status_code == 302
    page = alice.get(SESSIONS).content.decode()
    for told in ("192.0.2.1", "198.51.100.7", "198.51.100.8", "curl of an intruder"):
        assert told in page
    assert "203.0.113.5" not in page


def test_a_session_names_its_browser_and_its_system(alice: Browser) -> None:
    system, engine = "X11; Linux x86_64; rv:140.0", "Gecko/20100101"
    by_api("198.51.100.7", f"Mozilla/5.0 ({system}) {engine} Firefox/140.0")
    by_api("198.51.100.8", "<b>")
    page = alice.get(SESSIONS).content.decode()
    assert "Firefox on Linux" in page and "Unknown browser" in page and "<b>" not in page


def test_signing_out_everywhere_ends_the_others_of_the_same_person_alone(alice: Browser) -> None:
    intruder, viewer = by_api("198.51.100.7"), Browser("203.0.113.5")
    viewer.sign_in("viewer@acme.example")
    assert intruder.get("/api/v1/me").status_code == 200
    assert alice.submit(SESSIONS).status_code == 302
    assert intruder.get("/api/v1/me").status_code == 401
    assert (alice.email, viewer.email) == (EMAIL, "viewer@acme.example")
    assert "198.51.100.7" not in alice.get(SESSIONS).content.decode()


def test_a_session_that_was_signed_out_is_not_listed(alice: Browser) -> None:
    other = Browser("198.51.100.9")
    other.sign_in(EMAIL)
    other.submit("/account/logout/")
    assert "198.51.100.9" not in alice.get(SESSIONS).content.decode()


def test_another_site_can_sign_nobody_out_everywhere(alice: Browser) -> None:
    intruder = by_api("198.51.100.7")
    assert alice.http.post(SESSIONS).status_code == 403
    assert intruder.get("/api/v1/me").status_code == 200


def test_signing_out_everywhere_is_recorded(alice: Browser, acme: House) -> None:
    by_api("198.51.100.7")
    alice.submit(SESSIONS)
    with operator_scope("test"):
        seal_now()
        event = AuditEvent.objects.get(verb="sessions_ended")
        owner = str(acme.people["owner"].pk)
        assert (event.actor_id, event.record_id) == (owner, owner)
        assert event.changed_fields == {"sessions": 1}
        assert event.personal.address == "192.0.2.1"
