"""Webhooks as a tenant's people and keys set them up, try them, and see what became of them."""

from collections.abc import Callable, Iterator

import pytest
from pytest_django import Settings
from standardwebhooks import Webhook

from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent
from tenants.webhooks.deliveries import deliver_due
from tenants.webhooks.models import Delivery, Endpoint
from tests.support.api_client import ApiClient
from tests.support.two_tenants import House
from tests.support.webhooks.receiver import Receiver, a_receiver

AsRole = Callable[[str], ApiClient]
WithScopes = Callable[..., ApiClient]
URL = "https://93.184.216.34/hook"


@pytest.fixture
def receiver(settings: Settings, acme: House) -> Iterator[Receiver]:
    """Nothing is due but what a test sends: what the houses begin with would go to the internet."""
    with operator_scope("tests"):
        Delivery.objects.all().delete()
    settings.PENSTOCK_WEBHOOK_ALLOW_LOOPBACK = True
    with a_receiver() as receiver:
        yield receiver


def test_an_endpoint_is_made_changed_and_removed(as_role: AsRole) -> None:
    admin = as_role("admin")
    made = admin.post("webhooks", {"url": URL, "event_types": ["invoice.paid", "balance.low"]})
    assert made.status_code == 201
    endpoint = made.json()
    assert endpoint["secret"].startswith("whsec_")
    assert endpoint["event_types"] == ["balance.low", "invoice.paid"]
    path = f"webhooks/{endpoint['id']}"
    shown = admin.get(path).json()
    assert "secret" not in shown
    assert shown == {name: value for name, value in endpoint.items() if name != "secret"}
    changed = admin.patch(path, {"event_types": None, "description": " to billing "}).json()
    assert changed == shown | {"event_types": None, "description": "to billing"}
    off = admin.patch(path, {"is_enabled": False}).json()
    assert (off["is_enabled"], off["disabled_reason"]) == (False, "by_hand")
    assert admin.post(f"{path}/test").status_code == 409
    on = admin.patch(path, {"is_enabled": True}).json()
    assert on == changed
    assert {row["id"] for row in admin.get("webhooks").json()["data"]} >= {endpoint["id"]}
    assert admin.delete(path).status_code == 204
    assert admin.get(path).status_code == 404


@pytest.mark.parametrize(
    ("body", "param", "reason"),
    [
        ({"url": "http://hooks.example.com/"}, "url", "begins with https"),
        ({"url": "https://127.0.0.1/"}, "url", "private, local or reserved network"),
        ({"url": "https://[::ffff:10.0.0.1]/"}, "url", "private, local or reserved network"),
        ({"url": "https://169.254.169.254/latest/meta-data"}, "url", "private, local or reserved"),
        ({"url": "https://2130706433/"}, "url", "four decimal numbers"),
        ({"url": "https://me:secret@93.184.216.34/"}, "url", "no user name"),
        ({"url": "https://localhost:8000/"}, "url", "has no dot"),
        ({"url": ""}, "url", "length >= 1"),
        ({"url": "https://93.184.216.34/" + "x" * 2000}, "url", "length <= 2000"),
        ({"url": URL, "event_types": ["invoice.lost"]}, "event_types", "there is quota.threshold"),
        ({"url": URL, "event_types": ["webhook.test"]}, "event_types", "There is no event type"),
        ({"url": URL, "event_types": []}, "event_types", "null is all"),
        ({"url": URL, "description": "x" * 201}, "description", "length <= 200"),
        ({"url": URL, "secret": "mine"}, "secret", "unknown parameter"),
        ({}, None, "url"),
    ],
)
def test_a_bad_endpoint_is_refused_with_the_reason(
    as_role: AsRole, body: dict[str, object], param: str | None, reason: str
) -> None:
    answer = as_role("admin").post("webhooks", body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert reason.lower() in error["message"].lower()
    assert param is None or error["param"] == param
    assert "secret@" not in answer.content.decode()


def test_a_change_is_checked_as_a_new_one_is(as_role: AsRole, acme: House) -> None:
    admin, path = as_role("admin"), f"webhooks/{acme.endpoint.id}"
    for body in ({"url": "https://10.0.0.1/"}, {"event_types": ["nonesuch"]}):
        assert admin.patch(path, body).status_code == 400
    with operator_scope("test"):
        assert Endpoint.objects.get(id=acme.endpoint.id).url == acme.endpoint.url


def test_a_test_is_delivered_logged_and_delivered_again(
    as_role: AsRole, receiver: Receiver
) -> None:
    admin = as_role("admin")
    endpoint = admin.post("webhooks", {"url": receiver.url}).json()
    path = f"webhooks/{endpoint['id']}"
    sent = admin.post(f"{path}/test")
    assert (sent.status_code, sent.json()["state"]) == (201, "pending")
    receiver.status, receiver.body = 500, b"out of order"
    deliver_due()
    (row,) = admin.get(f"{path}/deliveries").json()["data"]
    assert (row["state"], row["last_problem"]["code"]) == ("pending", "status")
    delivery = f"{path}/deliveries/{row['id']}"
    shown = admin.get(delivery).json()
    (attempt,) = shown["log"]
    assert (attempt["status_code"], attempt["response_excerpt"]) == (500, "out of order")
    assert attempt["problem"]["message"].endswith("not 2xx.")
    receiver.status = 200
    assert admin.post(f"{delivery}/redeliver").json()["state"] == "pending"
    deliver_due()
    assert admin.get(delivery).json()["state"] == "delivered"
    first, second = receiver.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == row["webhook_id"]
    for request in (first, second):
        Webhook(endpoint["secret"]).verify(request.body, request.headers)


def test_a_rotation_answers_the_new_secret_once(as_role: AsRole, receiver: Receiver) -> None:
    admin = as_role("admin")
    endpoint = admin.post("webhooks", {"url": receiver.url}).json()
    path = f"webhooks/{endpoint['id']}"
    rotated = admin.post(f"{path}/rotate", {"overlap_seconds": 3600}).json()
    assert rotated["secret"] != endpoint["secret"]
    assert rotated["previous_secret_expires_at"] is not None
    assert "secret" not in admin.get(path).json()
    admin.post(f"{path}/test")
    deliver_due()
    (request,) = receiver.requests
    for secret in (endpoint["secret"], rotated["secret"]):
        Webhook(secret).verify(request.body, request.headers)
    assert admin.post(f"{path}/rotate", {"overlap_seconds": 8 * 86400}).status_code == 400


def test_a_developer_sees_what_became_of_a_delivery_and_not_what_was_in_it(
    as_role: AsRole, acme: House
) -> None:
    path = f"webhooks/{acme.endpoint.id}/deliveries/{acme.delivery.id}"
    of_admin, of_developer = (as_role(role).get(path).json() for role in ("admin", "developer"))
    assert of_admin["data"]["endpoint_id"] == str(acme.endpoint.id)
    assert of_developer == of_admin | {"data": None}


@pytest.mark.parametrize(
    ("role", "reads", "writes"),
    [("owner", 200, 201), ("developer", 200, 403), ("billing", 403, 403), ("viewer", 403, 403)],
)
def test_who_may_see_and_who_may_set_webhooks(
    as_role: AsRole, role: str, reads: int, writes: int
) -> None:
    client = as_role(role)
    assert client.get("webhooks").status_code == reads
    assert client.post("webhooks", {"url": URL}).status_code == writes


def test_a_key_with_the_scope_admin_may_too(with_scopes: WithScopes) -> None:
    assert with_scopes("admin").post("webhooks", {"url": URL}).status_code == 201
    assert with_scopes("usage:read", "keys:write").get("webhooks").status_code == 403


def test_changes_are_on_record_without_url_and_secret(as_role: AsRole, acme: House) -> None:
    admin = as_role("admin")
    made = admin.post("webhooks", {"url": f"{URL}/hush", "description": "to billing"}).json()
    admin.post(f"webhooks/{made['id']}/rotate")
    admin.delete(f"webhooks/{made['id']}")
    with operator_scope("test"):
        seal_now()
        events = AuditEvent.objects.filter(record_id=made["id"]).order_by("sequence")
        told = [(event.verb, event.actor_kind) for event in events]
        texts = " ".join(f"{event.changes} {event.personal.changes}" for event in events)
    assert told == [("created", "user"), ("rotated", "user"), ("deleted", "user")]
    assert "hush" not in texts and made["secret"] not in texts


def test_a_member_is_told_by_e_mail_or_not(as_role: AsRole, acme: House) -> None:
    admin = as_role("admin")
    path = f"members/{acme.members['admin'].id}"
    assert admin.get(path).json()["gets_alerts"] is True
    assert admin.patch(path, {"gets_alerts": False}).json()["gets_alerts"] is False
    assert admin.get(path).json()["role"] == "admin"
    owner = f"members/{acme.members['owner'].id}"
    assert admin.patch(owner, {"gets_alerts": False}).status_code == 403


def test_a_quota_is_told_of_at_the_shares_that_were_asked_for(as_role: AsRole, acme: House) -> None:
    admin = as_role("admin")
    place = {"project_id": str(acme.project.id), "limit": "tokens_per_month", "value": 5}
    made = admin.post("quotas", place | {"alert_percents": [90, 25, 90]}).json()
    assert made["alert_percents"] == [25, 90]
    path = f"quotas/{made['id']}"
    assert admin.patch(path, {"alert_percents": []}).json()["alert_percents"] == []
    assert admin.patch(path, {"value": 6}).json()["alert_percents"] == []
    for wrong in ([0], [1001], ["50"], [50] * 11, None):
        assert admin.patch(path, {"alert_percents": wrong}).status_code == 400


def test_a_tenant_says_at_which_balance_it_is_told(as_role: AsRole) -> None:
    admin = as_role("admin")
    assert admin.get("balance-alert").json()["threshold_nanos"] == 5_000_000_000
    for nanos in (20_000_000_000, None, 0):
        changed = admin.patch("balance-alert", {"threshold_nanos": nanos})
        assert changed.json() == {"object": "balance_alert", "threshold_nanos": nanos}
        assert admin.get("balance-alert").json() == changed.json()
    for wrong in (-1, 0.5, "5", 2**63):
        assert admin.patch("balance-alert", {"threshold_nanos": wrong}).status_code == 400
    assert admin.patch("balance-alert", {}).status_code == 400
