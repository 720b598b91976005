"""`manage.py webhooks`: what operators see of a tenant's webhooks, and set going by hand."""

import json

import pytest

from tenants.models import Project
from tenants.webhooks.deliveries import deliver_due
from tenants.webhooks.endpoints import NewSecret, change_endpoint
from tests.support.commands import attempt, refused, run
from tests.support.refusals import raises_conflict
from tests.support.webhooks.receiver import Receiver

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators")]


def test_a_tenants_endpoints_are_listed_without_their_secrets(
    acme: Project, endpoint: NewSecret, receiver: Receiver
) -> None:
    (row,) = run("webhooks", "list", "acme")
    assert (row["url"], row["event_types"], row["is_enabled"]) == (receiver.url, "all", True)
    assert endpoint.secret.text not in json.dumps(row)


def test_a_test_is_sent_looked_up_and_redelivered(
    acme: Project, endpoint: NewSecret, receiver: Receiver
) -> None:
    sent = run("webhooks", "test", str(endpoint.endpoint.pk))
    assert deliver_due() == 1
    (row,) = run("webhooks", "log", str(endpoint.endpoint.pk))
    assert row["delivery_id"] == sent["delivery_id"]
    assert (row["state"], row["last_status_code"]) == ("delivered", 200)
    assert run("webhooks", "redeliver", row["delivery_id"])["state"] == "pending"
    assert deliver_due() == 1
    assert len(receiver.requests) == 2


def test_what_cannot_be_is_one_sentence(acme: Project, endpoint: NewSecret) -> None:
    assert "'nobody'" in refused("webhooks", "list", "nobody")
    assert "'7'" in refused("webhooks", "test", "7")
    assert "webhook delivery" in refused("webhooks", "redeliver", str(endpoint.endpoint.pk))
    change_endpoint(endpoint.endpoint, is_enabled=False)
    with raises_conflict("endpoint_disabled"):
        attempt("webhooks", "test", str(endpoint.endpoint.pk))
