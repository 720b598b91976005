"""Endpoints: disabled where they fail, redelivered to, tested, their secrets rotated."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import structlog
from pytest_django import Settings
from standardwebhooks import Webhook

from tenants.isolation.scoping import tenant_scope
from tenants.models import Project
from tenants.webhooks.deliveries import (
    DISABLE_AFTER,
    claim_due,
    deliver_due,
    record,
)
from tenants.webhooks.endpoints import (
    MAX_TESTS_AN_HOUR,
    NewSecret,
    add_endpoint,
    change_endpoint,
    redeliver,
    remove_endpoint,
    rotate_secret,
    send_test,
)
from tenants.webhooks.event_types import SUBSCRIBABLE
from tenants.webhooks.fan_out import fan_out_events
from tenants.webhooks.models import Delivery, DeliveryAttempt, Endpoint, Event
from tenants.webhooks.sending import Outcome
from tests.support.refusals import raises_conflict
from tests.support.webhooks.attempts import NOW, fail_until_given_up, failed, tell
from tests.support.webhooks.receiver import Receiver, a_receiver

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators")]


def test_an_endpoint_may_take_every_kind_of_event_there_is(
    acme: Project, receiver: Receiver
) -> None:
    made = add_endpoint(acme.tenant, url=receiver.url, event_types=[*SUBSCRIBABLE])
    made.endpoint.refresh_from_db()
    assert set(made.endpoint.event_types or ()) == set(SUBSCRIBABLE)


def test_an_endpoint_that_fails_for_days_is_disabled_with_a_notice(
    acme: Project, endpoint: NewSecret, receiver: Receiver
) -> None:
    with a_receiver() as other:
        add_endpoint(acme.tenant, url=other.url, event_types=["webhook.disabled"])
        tell(acme)
        fan_out_events(NOW)
        first = fail_until_given_up(NOW)
        assert Endpoint.objects.get(pk=endpoint.endpoint.pk).is_enabled
        tell(acme, key="invoice 2")
        tell(acme, key="invoice 3")
        later = first + DISABLE_AFTER
        fan_out_events(later)
        Delivery.objects.filter(event__key="invoice 3").update(
            next_attempt_at=later + timedelta(days=9)
        )
        end = fail_until_given_up(later)
        disabled = Endpoint.objects.get(pk=endpoint.endpoint.pk)
        assert (disabled.is_enabled, disabled.disabled_reason) == (False, "failing")
        assert disabled.disabled_at == end
        left = Delivery.objects.get(event__key="invoice 3")
        assert (left.state, left.last_problem) == ("failed", "endpoint_disabled")
        fan_out_events(end)
        deliver_due(end)
        (notice,) = other.requests
        told = json.loads(notice.body)
        assert told["type"] == "webhook.disabled"
        assert told["data"]["endpoint_id"] == str(disabled.pk)
        assert told["data"]["reason"] == "failing"
        tell(acme, key="invoice 4")
        fan_out_events(end)
        assert not Delivery.objects.filter(event__key="invoice 4").exists()


def test_one_success_forgets_the_failures_before_it(acme: Project, endpoint: NewSecret) -> None:
    tell(acme)
    fan_out_events(NOW)
    (job,) = claim_due(NOW)
    record(job, failed(), NOW)
    assert Endpoint.objects.get().failing_since == NOW
    later = NOW + timedelta(minutes=1)
    (job,) = claim_due(later)
    record(job, Outcome(started_at=later, duration_ms=1, status_code=204), later)
    assert Endpoint.objects.get().failing_since is None


def test_an_endpoint_that_is_gone_is_disabled_at_once(
    acme: Project, endpoint: NewSecret, receiver: Receiver
) -> None:
    receiver.status = 410
    tell(acme)
    fan_out_events()
    deliver_due()
    gone = Endpoint.objects.get()
    assert (gone.is_enabled, gone.disabled_reason) == (False, "gone")
    assert Delivery.objects.get(event__type="invoice.paid").state == "failed"
    assert Event.objects.filter(type="webhook.disabled").count() == 1


def test_what_an_endpoint_missed_is_redelivered_by_hand_once_it_is_enabled(
    acme: Project, endpoint: NewSecret, receiver: Receiver
) -> None:
    receiver.status = 410
    tell(acme)
    fan_out_events()
    deliver_due()
    missed = Delivery.objects.select_related("endpoint").get(event__type="invoice.paid")
    with raises_conflict("endpoint_disabled"):
        redeliver(missed)
    enabled = change_endpoint(missed.endpoint, is_enabled=True)
    assert (enabled.is_enabled, enabled.disabled_reason) == (True, "")
    receiver.status = 200
    redeliver(missed)
    assert deliver_due() == 1
    first, second = receiver.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    missed.refresh_from_db()
    assert (missed.state, missed.attempts) == ("delivered", 2)
    redeliver(missed)  # also what was taken
    assert deliver_due() == 1


def test_an_endpoint_that_moved_into_a_private_network_is_refused_and_it_is_logged(
    acme: Project, endpoint: NewSecret, receiver: Receiver, settings: Settings
) -> None:
    settings.PENSTOCK_WEBHOOK_ALLOW_LOOPBACK = False
    Endpoint.objects.update(url=receiver.url.replace("http:", "https:"))
    tell(acme)
    fan_out_events()
    deliver_due()
    (attempt,) = DeliveryAttempt.objects.all()
    assert attempt.problem == "address_refused" and "private" in attempt.detail
    assert receiver.connections == 0


def test_an_endpoint_that_is_removed_meanwhile_takes_its_log_with_it(
    acme: Project, endpoint: NewSecret
) -> None:
    tell(acme)
    fan_out_events(NOW)
    (job,) = claim_due(NOW)
    with tenant_scope(acme.tenant_id):
        remove_endpoint(Endpoint.objects.get())
    record(job, failed(), NOW)
    assert not Delivery.objects.exists() and not DeliveryAttempt.objects.exists()


# Secrets ----------------------------------------------------------------------------------------


def test_while_a_rotation_overlaps_both_secrets_verify_and_afterwards_the_new_one(
    acme: Project, endpoint: NewSecret, receiver: Receiver
) -> None:
    new = rotate_secret(endpoint.endpoint, overlap=timedelta(hours=1))
    assert new.secret.text != endpoint.secret.text
    for key, later in (("during", timedelta(0)), ("after", timedelta(hours=2))):
        tell(acme, key=key)
        fan_out_events()
        deliver_due(datetime.now(UTC) + later)
    during, after = receiver.requests
    assert len(during.headers["webhook-signature"].split(" ")) == 2
    for secret in (endpoint.secret, new.secret):
        Webhook(secret.text).verify(during.body, during.headers)
    assert len(after.headers["webhook-signature"].split(" ")) == 1
    headers = after.headers | {"webhook-timestamp": after.headers["webhook-timestamp"]}
    expected = Webhook(new.secret.text).sign(
        headers["webhook-id"],
        datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC),
        after.body.decode(),
    )
    assert headers["webhook-signature"] == expected


def test_no_secret_is_in_the_database_or_in_a_log(
    acme: Project, endpoint: NewSecret, receiver: Receiver
) -> None:
    receiver.status = 500
    tell(acme)
    with structlog.testing.capture_logs() as logged:
        fan_out_events()
        deliver_due()
    rotate_secret(endpoint.endpoint, overlap=timedelta(hours=1))
    rows = [
        str(value)
        for model in (Endpoint, Event, Delivery, DeliveryAttempt)
        for row in model.objects.values_list()
        for value in row
    ] + [bytes(Endpoint.objects.get().previous_salt or b"").hex()]
    secrets = (endpoint.secret.text, endpoint.secret.key.hex(), repr(endpoint.secret.key))
    assert not [row for row in rows for secret in secrets if secret in row]
    assert not [line for line in map(str, logged) if receiver.url in line or "whsec_" in line]
    assert logged


def test_a_secret_outlives_a_new_secret_of_the_service_that_names_the_one_before(
    acme: Project, endpoint: NewSecret, receiver: Receiver, settings: Settings
) -> None:
    before = settings.SECRET_KEY
    settings.SECRET_KEY = "another secret of the service" * 2
    tell(acme)
    fan_out_events()
    deliver_due()
    assert receiver.requests == []
    assert Delivery.objects.get().last_problem == "secret_lost"
    settings.SECRET_KEY_FALLBACKS = [before]
    redeliver(Delivery.objects.select_related("endpoint").get())
    deliver_due()
    (request,) = receiver.requests
    Webhook(endpoint.secret.text).verify(request.body, request.headers)


# Tests ------------------------------------------------------------------------------------------


def test_a_test_goes_to_the_one_endpoint_whatever_it_subscribed_to(
    acme: Project, receiver: Receiver
) -> None:
    one = add_endpoint(acme.tenant, url=receiver.url, event_types=["invoice.paid"]).endpoint
    add_endpoint(acme.tenant, url=receiver.url)
    send_test(one)
    assert (fan_out_events(), deliver_due()) == (0, 1)
    told = json.loads(receiver.requests[0].body)
    assert told["type"] == "webhook.test"
    assert told["data"]["endpoint_id"] == str(one.pk)


def test_an_endpoint_is_not_tested_without_end(acme: Project, endpoint: NewSecret) -> None:
    for _ in range(MAX_TESTS_AN_HOUR):
        send_test(endpoint.endpoint)
    with raises_conflict("too_many_tests"):
        send_test(endpoint.endpoint)
