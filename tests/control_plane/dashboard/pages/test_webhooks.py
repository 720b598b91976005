"""Webhooks as pages: endpoints, their secrets, and what was sent to them."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client

from tenants.isolation.scoping import operator_scope
from tenants.webhooks.endpoints import add_endpoint, send_test
from tenants.webhooks.event_types import EventType
from tenants.webhooks.models import Delivery, DeliveryAttempt, Endpoint, Event
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.two_tenants import TwoTenants

pytestmark = pytest.mark.django_db
HTMX = {"HX-Request": "true"}
SECRET = re.compile(r"whsec_[A-Za-z0-9+/=]{40,}")
SCRIPT = "<script>alert(1)</script>"


def form(**changes: Any) -> dict[str, Any]:
    hook = {"url": "https://93.184.216.34/hook", "events": "all", "description": " ci "}
    return hook | changes


def one(houses: TwoTenants, acme_address: str) -> str:
    return f"{acme_address}webhooks/{houses.acme.endpoint.id}"


def endpoint_of(houses: TwoTenants) -> Endpoint:
    with operator_scope("test"):
        return Endpoint.objects.get(id=houses.acme.endpoint.id)


def test_an_endpoint_is_made_and_its_secret_shown_once(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client = signed_in("admin")
    answer = client.post(f"{acme_address}webhooks/new", form())
    assert answer.status_code == 200
    assert answer["Cache-Control"] == "no-store"
    (secret,) = set(SECRET.findall(answer.content.decode()))
    made = answer.context["made"]
    with operator_scope("test"):
        stored = Endpoint.objects.get(id=made.id)
        assert stored.secret.text == secret
        assert (stored.event_types, stored.description) == (None, "ci")
    for page in ("webhooks", f"webhooks/{made.id}", f"webhooks/{made.id}/change"):
        assert not SECRET.search(client.get(f"{acme_address}{page}").content.decode())


def test_htmx_gets_the_secret_in_place_of_the_form(signed_in: SignIn, acme_address: str) -> None:
    answer = signed_in("owner").post(f"{acme_address}webhooks/new", form(), headers=HTMX)
    html = answer.content.decode()
    assert SECRET.search(html) and "<html" not in html and "<form" not in html


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"url": ""}, "url"),
        ({"url": "http://93.184.216.34/hook"}, "url"),
        ({"url": "https://127.0.0.1/"}, "url"),
        ({"url": "https://169.254.169.254/latest/meta-data"}, "url"),
        ({"url": "https://user:pass@93.184.216.34/"}, "url"),
        ({"url": "javascript:alert(1)"}, "url"),
        ({"url": f"https://93.184.216.34/{SCRIPT}"}, "url"),
        ({"url": "https://93.184.216.34/" + "x" * 2000}, "url"),
        ({"events": "none"}, "events"),
        ({"events": "some"}, "event_types"),
        ({"events": "some", "event_types": ["webhook.test"]}, "event_types"),
        ({"events": "some", "event_types": ["nothing"]}, "event_types"),
        ({"description": "x" * 201}, "description"),
        ({"description": "a\x00b"}, "description"),
    ],
)
def test_what_is_wrong_is_said_at_its_field_and_nothing_is_made(
    fields: dict[str, Any], wrong: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    answer = signed_in("owner").post(f"{acme_address}webhooks/new", form(**fields))
    assert answer.status_code == 422
    assert list(answer.context["form"].errors) == [wrong]
    assert SCRIPT not in answer.content.decode()
    with operator_scope("test"):
        assert Endpoint.objects.filter(tenant=houses.acme.tenant).count() == 1


def test_a_seventeenth_endpoint_is_refused_in_words(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        for number in range(15):
            add_endpoint(houses.acme.tenant, url=f"https://93.184.216.34/{number}")
    answer = signed_in("owner").post(f"{acme_address}webhooks/new", form())
    assert answer.status_code == 422
    assert answer.context["form"].non_field_errors()


def test_an_endpoint_is_changed_to_chosen_events(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, address = signed_in("admin"), one(houses, acme_address)
    chosen = ["invoice.issued", "balance.low"]
    answer = client.post(f"{address}/change", form(events="some", event_types=chosen))
    assert (answer.status_code, answer["Location"]) == (302, address)
    assert endpoint_of(houses).event_types == sorted(chosen)
    shown = client.get(f"{address}/change").content.decode()
    assert len(re.findall(r'<input type="checkbox"[^>]+checked', shown)) == 2
    # All again: what is still ticked below counts for nothing.
    client.post(f"{address}/change", form(events="all", event_types=chosen))
    assert endpoint_of(houses).event_types is None


@pytest.mark.parametrize("hours", [0, 24, 168])
def test_a_rotated_secret_is_shown_once_and_the_old_one_signs_for_as_long_as_asked(
    hours: int, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    before = endpoint_of(houses).secret.text
    answer = signed_in("admin").post(f"{one(houses, acme_address)}/rotate", {"overlap": hours})
    (secret,) = set(SECRET.findall(answer.content.decode()))
    endpoint = endpoint_of(houses)
    assert secret == endpoint.secret.text != before
    signing = [each.text for each in endpoint.secrets_at(datetime.now(UTC))]
    assert signing == ([secret, before] if hours else [secret])


@pytest.mark.parametrize("overlap", ["", "-1", "999", "1; DROP TABLE"])
def test_no_other_overlap_is_taken(
    overlap: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    before = endpoint_of(houses).secret.text
    answer = signed_in("admin").post(f"{one(houses, acme_address)}/rotate", {"overlap": overlap})
    assert answer.status_code == 422
    assert endpoint_of(houses).secret.text == before


def test_an_endpoint_is_turned_off_and_on(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, address = signed_in("admin"), one(houses, acme_address)
    assert client.get(f"{address}/disable").context["count"].pending == 1
    assert client.post(f"{address}/disable").status_code == 302
    assert not endpoint_of(houses).is_enabled
    test = client.post(f"{address}/test", follow=True)
    assert [message.level_tag for message in test.context["messages"]][-1] == "error"
    assert client.post(f"{address}/enable").status_code == 302
    assert endpoint_of(houses).is_enabled


def test_a_test_event_leads_to_its_delivery(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    answer = signed_in("admin").post(f"{one(houses, acme_address)}/test", follow=True)
    assert answer.context["delivery"].event.type == EventType.WEBHOOK_TEST
    assert answer.context["delivery"].id != houses.acme.delivery.id


def test_an_endpoint_goes_only_once_its_host_is_typed(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client, address = signed_in("admin"), f"{one(houses, acme_address)}/delete"
    asked = client.get(address)
    assert asked.context["count"].total == 1
    for typed in ("", "93.184.216.3", "acme"):
        assert client.post(address, {"confirm_name": typed}).status_code == 422
    assert endpoint_of(houses)
    gone = client.post(address, {"confirm_name": " 93.184.216.34 "})
    assert (gone.status_code, gone["Location"]) == (302, f"{acme_address}webhooks")
    with operator_scope("test"):
        assert not Endpoint.objects.filter(id=houses.acme.endpoint.id).exists()
        assert Endpoint.objects.filter(id=houses.globex.endpoint.id).exists()


def test_deliveries_are_filtered_by_state(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        failed = send_test(houses.acme.endpoint)
        Delivery.objects.filter(id=failed.id).update(
            state="failed", next_attempt_at=None, last_status_code=500, last_problem="status"
        )
    client, address = signed_in("developer"), one(houses, acme_address)
    assert len(client.get(address).context["rows"]) == 2
    rows = client.get(address, {"state": "failed"}, headers=HTMX).context["rows"]
    assert [delivery.id for delivery, _ in rows] == [failed.id]


def test_what_a_receiver_answered_is_text(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        DeliveryAttempt.objects.create(
            tenant=houses.acme.tenant, delivery=houses.acme.delivery, number=1,
            started_at=datetime.now(UTC), duration_ms=3, status_code=500, problem="status",
            detail=SCRIPT, response_excerpt=SCRIPT,
        )  # fmt: skip
    address = f"{one(houses, acme_address)}/deliveries/{houses.acme.delivery.id}"
    html = signed_in("admin").get(address).content.decode()
    assert SCRIPT not in html and html.count("&lt;script&gt;") == 2


def test_a_payload_is_for_those_who_may_see_balances(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    address = f"{one(houses, acme_address)}/deliveries/{houses.acme.delivery.id}"
    assert "webhook.test" in signed_in("admin").get(address).context["payload"]
    developers = signed_in("developer").get(address)
    assert developers.context["payload"] is None
    with operator_scope("test"):
        message = Event.objects.get(deliveries=houses.acme.delivery).data["message"]
    assert message not in developers.content.decode()


def test_no_page_of_a_delivery_holds_a_secret(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    address = f"{one(houses, acme_address)}/deliveries/{houses.acme.delivery.id}"
    html = signed_in("owner").get(address).content.decode()
    assert not SECRET.search(html) and "webhook-signature" not in html


def test_a_delivery_is_sent_again(signed_in: SignIn, houses: TwoTenants, acme_address: str) -> None:
    delivery = houses.acme.delivery
    with operator_scope("test"):
        Delivery.objects.filter(id=delivery.id).update(state="failed", next_attempt_at=None)
    address = f"{one(houses, acme_address)}/deliveries/{delivery.id}"
    answer = signed_in("admin").post(f"{address}/redeliver")
    assert (answer.status_code, answer["Location"]) == (302, address)
    with operator_scope("test"):
        assert Delivery.objects.get(id=delivery.id).state == "pending"


ACTIONS = ("new", "{}/change", "{}/rotate", "{}/enable", "{}/disable", "{}/test", "{}/delete")


@pytest.mark.parametrize("action", ACTIONS)
def test_a_developer_looks_and_changes_nothing(
    action: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    client = signed_in("developer")
    address = f"{acme_address}webhooks/{action.format(houses.acme.endpoint.id)}"
    assert client.post(address, form()).status_code == 403
    shown = client.get(one(houses, acme_address))
    assert shown.status_code == 200 and f'action="{address}"' not in shown.content.decode()


@pytest.mark.parametrize("action", ACTIONS)
def test_nothing_changes_while_the_tenant_is_suspended(
    action: str, signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        houses.acme.tenant.suspend()
    address = f"{acme_address}webhooks/{action.format(houses.acme.endpoint.id)}"
    assert signed_in("owner").post(address, form()).status_code == 403


def test_a_change_needs_the_pages_token(houses: TwoTenants, acme_address: str) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(houses.acme.people["owner"])
    assert client.post(f"{one(houses, acme_address)}/disable").status_code == 403
    assert endpoint_of(houses).is_enabled
