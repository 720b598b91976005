"""From an event to what receivers get: once for each, signed."""

import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from psycopg import errors
from standardwebhooks import Webhook, WebhookVerificationError

from tenants.isolation.scoping import NoTenantScope, assume_scope, operator_scope, tenant_scope
from tenants.models import Project
from tenants.webhooks.deliveries import (
    deliver_due,
)
from tenants.webhooks.endpoints import (
    NewSecret,
    add_endpoint,
)
from tenants.webhooks.event_types import EventType
from tenants.webhooks.events import MAX_DATA_BYTES, InvalidEvent, publish
from tenants.webhooks.fan_out import fan_out_events
from tenants.webhooks.models import Delivery, DeliveryAttempt, Event
from tests.support.refusals import database_refuses
from tests.support.webhooks.attempts import DATA, PAID, tell
from tests.support.webhooks.receiver import Receiver, a_receiver

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators")]


def test_an_event_arrives_signed_as_the_specification_says(
    acme: Project, endpoint: NewSecret, receiver: Receiver
) -> None:
    tell(acme)
    assert (fan_out_events(), deliver_due()) == (1, 1)
    (request,) = receiver.requests
    told = Webhook(endpoint.secret.text).verify(request.body, request.headers)
    event = Event.objects.get()
    assert told == {
        "type": "invoice.paid",
        "timestamp": told["timestamp"],
        "data": DATA,
    }
    assert datetime.fromisoformat(told["timestamp"]) == _to_milliseconds(event.occurred_at)
    assert request.headers["webhook-id"] == f"msg_{event.id.hex}"
    assert abs(int(request.headers["webhook-timestamp"]) - datetime.now(UTC).timestamp()) < 60
    assert request.headers["content-type"] == "application/json"
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.attempts, delivery.last_status_code) == ("delivered", 1, 200)
    (attempt,) = DeliveryAttempt.objects.all()
    assert (attempt.number, attempt.status_code, attempt.response_excerpt) == (1, 200, "ok")
    assert (fan_out_events(), deliver_due()) == (0, 0)


def _to_milliseconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def test_a_body_that_was_changed_on_its_way_does_not_verify(
    acme: Project, endpoint: NewSecret, receiver: Receiver
) -> None:
    tell(acme)
    fan_out_events()
    deliver_due()
    (request,) = receiver.requests
    with pytest.raises(WebhookVerificationError):
        Webhook(endpoint.secret.text).verify(request.body + b" ", request.headers)


def test_what_is_published_twice_is_told_once(
    acme: Project, endpoint: NewSecret, receiver: Receiver
) -> None:
    for _ in range(2):
        tell(acme)
        fan_out_events()
        deliver_due()
    assert len(receiver.requests) == 1
    tell(acme, key="invoice 2")
    tell(acme, kind=EventType.INVOICE_ISSUED)
    assert fan_out_events() == 2


def test_what_is_undone_is_told_to_nobody(acme: Project, endpoint: NewSecret) -> None:
    with pytest.raises(RuntimeError), operator_scope("test"):
        tell(acme)
        raise RuntimeError("on purpose")
    assert fan_out_events() == 0


def test_a_tenants_code_publishes_for_itself_and_for_nobody_else(
    acme: Project, globex: Project
) -> None:
    with tenant_scope(acme.tenant_id):
        tell(acme)
    with database_refuses(errors.InsufficientPrivilege), tenant_scope(globex.tenant_id):
        tell(acme, key="other")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("type", "invoice.lost"),
        ("key", ""),
        ("key", "k" * 201),
        ("data", {"text": "x" * MAX_DATA_BYTES}),
    ],
)
def test_an_event_that_cannot_be_is_refused(acme: Project, field: str, value: Any) -> None:
    fields: dict[str, Any] = {"type": "invoice.paid", "data": {}, "key": "k"} | {field: value}
    with pytest.raises(InvalidEvent) as refused:
        publish(acme.tenant_id, **fields)
    assert refused.value.field == field


def test_an_endpoint_gets_what_it_subscribed_to_and_its_own_tenants(
    acme: Project, globex: Project, receiver: Receiver
) -> None:
    with a_receiver() as other:
        add_endpoint(acme.tenant, url=receiver.url, event_types=["invoice.paid"])
        add_endpoint(acme.tenant, url=other.url, event_types=["balance.low", "invoice.issued"])
        add_endpoint(globex.tenant, url=other.url)
        tell(acme)
        fan_out_events()
        deliver_due()
        assert (len(receiver.requests), len(other.requests)) == (1, 0)


def test_nobody_looks_without_a_scope(acme: Project) -> None:
    with assume_scope(None), pytest.raises(NoTenantScope):
        publish(uuid.uuid4(), PAID, {}, key="k")
