"""A delivery's life: tried again, given up, kept for a while."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection

from tenants import fsck
from tenants.isolation.scoping import operator_scope
from tenants.models import Project
from tenants.webhooks import deliveries, sending
from tenants.webhooks.deliveries import (
    LEASE,
    MAX_TRIES,
    DeliveryJob,
    claim_due,
    delay_after,
    deliver_due,
    record,
)
from tenants.webhooks.endpoints import (
    NewSecret,
    add_endpoint,
)
from tenants.webhooks.events import publish
from tenants.webhooks.fan_out import fan_out_events
from tenants.webhooks.models import Delivery, DeliveryAttempt, Endpoint, Event
from tenants.webhooks.problems import Problem
from tenants.webhooks.retention import KEPT, delete_old_events
from tenants.webhooks.sending import Outcome
from tests.support.webhooks.attempts import NOW, PAID, fail_until_given_up, failed, tell
from tests.support.webhooks.receiver import Receiver, a_receiver

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators")]


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
    assert problem.problem.startswith("1 events ")
    assert "queue `webhooks`" in problem.problem
