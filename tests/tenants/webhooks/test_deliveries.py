"""From an event to what receivers get: once for each, signed, tried again, given up, kept."""

import json
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import structlog
from django.db import connection
from pytest_django import Settings
from standardwebhooks import Webhook, WebhookVerificationError

from tenants import fsck
from tenants.errors import Conflict
from tenants.isolation.scoping import NoTenantScope, operator_scope, tenant_scope
from tenants.models import Project
from tenants.webhooks import deliveries, sending
from tenants.webhooks.deliveries import (
    DISABLE_AFTER,
    LEASE,
    MAX_TRIES,
    DeliveryJob,
    claim_due,
    delay_after,
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
from tenants.webhooks.event_types import EventType
from tenants.webhooks.events import MAX_DATA_BYTES, publish
from tenants.webhooks.fan_out import fan_out_events
from tenants.webhooks.models import Delivery, DeliveryAttempt, Endpoint, Event
from tenants.webhooks.problems import Problem
from tenants.webhooks.retention import KEPT, delete_old_events
from tenants.webhooks.sending import Outcome
from tests.support.webhook_receiver import Receiver, a_receiver

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators")]
NOW = datetime.now(UTC)
PAID = EventType.INVOICE_PAID
DATA = {"invoice_id": "2026-0001", "amount_nanos": 12_500_000_000}


def tell(acme: Project, key: str = "invoice 1", kind: EventType = PAID) -> None:
    publish(acme.tenant_id, kind, DATA, key=key)


def failed(problem: Problem = Problem.STATUS, status: int | None = 500) -> Outcome:
    return Outcome(started_at=NOW, duration_ms=3, status_code=status, problem=problem)


def fail_until_given_up(now: datetime) -> datetime:
    """All tries of the one delivery that is pending; returns when the last was."""
    while True:
        (job,) = claim_due(now)
        record(job, failed(), now)
        delivery = Delivery.objects.get(pk=job.delivery_id)
        if delivery.next_attempt_at is None:
            return now
        now = delivery.next_attempt_at


# Events -----------------------------------------------------------------------------------------


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
    with pytest.raises(Exception, match="row-level security"), tenant_scope(globex.tenant_id):
        tell(acme, key="other")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"type": "invoice.lost"}, "is not a valid EventType"),
        ({"key": ""}, "1 to 200 characters"),
        ({"key": "k" * 201}, "1 to 200 characters"),
        ({"data": {"text": "x" * MAX_DATA_BYTES}}, "at most 16384 bytes"),
    ],
)
def test_an_event_that_cannot_be_is_refused(
    acme: Project, change: dict[str, Any], reason: str
) -> None:
    fields = {"type": "invoice.paid", "data": {}, "key": "k"} | change
    with pytest.raises(ValueError, match=reason):
        publish(acme.tenant_id, **fields)


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


# Tries ------------------------------------------------------------------------------------------


def test_a_failure_is_tried_again_later_under_the_same_id_with_a_new_timestamp(
    acme: Project, endpoint: NewSecret, receiver: Receiver
) -> None:
    receiver.status, receiver.body = 500, b"out of order"
    tell(acme)
    fan_out_events()
    deliver_due()
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.last_problem) == ("pending", "status")
    assert delivery.next_attempt_at is not None
    assert deliver_due(delivery.next_attempt_at - timedelta(seconds=1)) == 0
    receiver.status = 200
    assert deliver_due(delivery.next_attempt_at + timedelta(seconds=1)) == 1
    first, second = receiver.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.headers["webhook-timestamp"] < second.headers["webhook-timestamp"]
    assert first.body == second.body
    delivery.refresh_from_db()
    assert (delivery.state, delivery.attempts) == ("delivered", 2)
    log = DeliveryAttempt.objects.values_list("number", "status_code", "response_excerpt")
    assert list(log) == [(1, 500, "out of order"), (2, 200, "out of order")]


def test_tries_are_further_and_further_apart_for_about_a_day(
    acme: Project, endpoint: NewSecret
) -> None:
    tell(acme)
    fan_out_events(NOW)
    last = fail_until_given_up(NOW)
    assert timedelta(hours=20) < last - NOW < timedelta(hours=36)
    delivery = Delivery.objects.get()
    assert (delivery.state, delivery.attempts) == ("failed", MAX_TRIES)
    assert claim_due(last + timedelta(days=30)) == []
    waits = [delay_after(tries, failed()) for tries in range(1, MAX_TRIES)]
    assert waits == sorted(waits) and waits[0] < timedelta(seconds=13)
    assert len({delay_after(5, failed()) for _ in range(50)}) > 1


def test_a_receiver_that_names_a_time_is_not_asked_before_it() -> None:
    busy = Outcome(
        started_at=NOW,
        duration_ms=1,
        status_code=503,
        problem=Problem.STATUS,
        retry_after_seconds=3600,
    )
    assert delay_after(1, busy) == timedelta(hours=1)
    assert delay_after(MAX_TRIES - 1, busy) > timedelta(hours=10)


@pytest.mark.django_db(transaction=True)
def test_of_several_workers_each_takes_other_deliveries(
    acme: Project, receiver: Receiver, elsewhere: Callable[[Callable[[], Any]], Any]
) -> None:
    with operator_scope("test"):
        for _ in range(3):
            add_endpoint(acme.tenant, url=receiver.url)
        tell(acme)
    fan_out_events(NOW)
    with operator_scope("test"):
        ours = claim_due(NOW)  # not committed yet
        assert elsewhere(lambda: claim_due(NOW)) == []
    assert len(ours) == 3
    assert claim_due(NOW) == []


def test_one_tenants_backlog_takes_no_more_than_its_share(
    acme: Project, globex: Project, receiver: Receiver
) -> None:
    add_endpoint(acme.tenant, url=receiver.url)
    for number in range(20):
        tell(acme, key=f"invoice {number}")
    fan_out_events(NOW)
    add_endpoint(globex.tenant, url=receiver.url)
    publish(globex.tenant_id, PAID, {}, key="one")
    fan_out_events(NOW)
    first = claim_due(NOW)
    tenants = [job.tenant_id for job in first]
    assert (tenants.count(acme.tenant_id), tenants.count(globex.tenant_id)) == (4, 1)
    # While these are under way Acme gets no more.
    assert claim_due(NOW, beside=first) == []
    seen = len(first)
    while more := len(claim_due(NOW)):
        seen += more
    assert seen == 21


def test_a_tenants_endpoints_that_work_come_before_those_that_do_not(
    acme: Project, receiver: Receiver
) -> None:
    for _ in range(4):
        broken = add_endpoint(acme.tenant, url=receiver.url).endpoint
        Endpoint.objects.filter(pk=broken.pk).update(failing_since=NOW)
    tell(acme)
    fan_out_events(NOW - timedelta(hours=1))
    works = add_endpoint(acme.tenant, url=receiver.url).endpoint
    tell(acme, key="invoice 2")
    fan_out_events(NOW)
    assert works.pk in {job.endpoint_id for job in claim_due(NOW)}


def test_a_receiver_that_is_slow_holds_up_nobody_else(
    acme: Project, globex: Project, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_endpoint(acme.tenant, url=receiver.url)
    for number in range(8):
        tell(acme, key=f"invoice {number}")
    receiver.hurry.clear()
    with a_receiver() as quick:
        add_endpoint(globex.tenant, url=quick.url)
        for number in range(8):
            publish(globex.tenant_id, PAID, {}, key=f"invoice {number}")
        fan_out_events()
        recorded = []

        def note(job: DeliveryJob, outcome: Outcome, now: datetime | None = None) -> None:
            recorded.append(job.tenant_id)
            if recorded.count(globex.tenant_id) == 8:
                receiver.hurry.set()  # only now does Acme's server get on
            record(job, outcome, now)

        monkeypatch.setattr(deliveries, "record", note)
        assert deliver_due() == 16
        assert len(quick.requests) == 8
    assert recorded[:8] == [globex.tenant_id] * 8


@pytest.mark.django_db(transaction=True)
def test_many_workers_deliver_each_once(acme: Project, globex: Project, receiver: Receiver) -> None:
    with operator_scope("test"):
        for project in (acme, globex):
            add_endpoint(project.tenant, url=receiver.url)
            for number in range(20):
                publish(project.tenant_id, PAID, {}, key=f"invoice {number}")

    def work() -> int:
        try:
            fan_out_events()
            return deliver_due()
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as threads:
        made = [worker.result(60) for worker in [threads.submit(work) for _ in range(4)]]
    made.append(deliver_due())  # what was locked by one when the others looked
    assert sum(made) == 40
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 40
    assert len(receiver.requests) == 40
    assert set(Delivery.objects.values_list("state", flat=True)) == {"delivered"}


def test_one_that_cannot_be_sent_stops_no_other(
    acme: Project, endpoint: NewSecret, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = sending.send

    def send(url: str, **options: Any) -> Outcome:
        if "poison" in options["body"]:
            raise RuntimeError("on purpose")
        return real(url, **options)

    monkeypatch.setattr(sending, "send", send)
    publish(acme.tenant_id, PAID, {"text": "poison"}, key="poison")
    tell(acme)
    fan_out_events()
    assert deliver_due() == 2
    ends = Delivery.objects.order_by("state").values_list("state", "last_problem")
    assert list(ends) == [("delivered", ""), ("pending", "not_sent")]


def test_what_was_lost_with_its_worker_is_sent_again(acme: Project, endpoint: NewSecret) -> None:
    tell(acme)
    fan_out_events(NOW)
    (lost,) = claim_due(NOW)
    assert claim_due(NOW + LEASE / 2) == []
    (again,) = claim_due(NOW + LEASE)
    assert (lost.number, again.number) == (1, 2)
    # The worker was only slow: what it found out is logged, and the second attempt decides.
    record(lost, failed(), NOW + LEASE)
    assert Delivery.objects.get().next_attempt_at == NOW + 2 * LEASE
    record(again, Outcome(started_at=NOW, duration_ms=1, status_code=200), NOW + LEASE)
    assert Delivery.objects.get().state == "delivered"
    assert DeliveryAttempt.objects.count() == 2


# Endpoints that do not work ---------------------------------------------------------------------


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
    with pytest.raises(Conflict, match="enable it first"):
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


# Tests, the log's end, the check ----------------------------------------------------------------


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
    with pytest.raises(Conflict, match="wait a little"):
        send_test(endpoint.endpoint)


def test_what_is_old_and_done_is_forgotten(acme: Project, endpoint: NewSecret) -> None:
    tell(acme, key="old")
    tell(acme, key="old and pending")
    fan_out_events()
    deliver_due()
    Delivery.objects.filter(event__key="old and pending").update(
        state="pending", next_attempt_at=NOW + timedelta(days=60)
    )
    later = datetime.now(UTC) + KEPT
    assert delete_old_events(later - timedelta(days=1)) == 0
    assert delete_old_events(later + timedelta(days=1)) == 1
    assert [event.key for event in Event.objects.all()] == ["old and pending"]
    assert DeliveryAttempt.objects.count() == 1


def test_fsck_finds_what_nobody_sends(acme: Project, endpoint: NewSecret) -> None:
    tell(acme)
    assert list(deliveries.overdue_problems()) == []
    Event.objects.update(created_at=NOW - timedelta(hours=2))
    (problem,) = [each for each in fsck.run_checks() if each.check == "webhooks"]
    assert "1 events wait to be told" in problem.problem
    assert "queue `webhooks`" in problem.problem


def test_nobody_looks_without_a_scope(acme: Project) -> None:
    from tenants.isolation import scoping

    token = scoping._open_scope.set(None)
    try:
        with pytest.raises(NoTenantScope):
            publish(uuid.uuid4(), PAID, {}, key="k")
    finally:
        scoping._open_scope.reset(token)
