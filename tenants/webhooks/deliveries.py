"""A delivery's life: sent, tried again, given up.

Any number of workers may be at it. A delivery that is being sent is due again after `LEASE`, so
that it is not lost with its worker; its receiver knows it by the header `webhook-id`.
"""

import random
import time
import uuid
from collections import Counter
from collections.abc import Collection
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from django.db.models import F, QuerySet, Window
from django.db.models.functions import RowNumber

from tenants.isolation.scoping import operator_scope
from tenants.webhooks import sending, signing
from tenants.webhooks.event_types import EventType
from tenants.webhooks.events import publish
from tenants.webhooks.models import (
    Delivery,
    DeliveryAttempt,
    DeliveryState,
    DisabledReason,
    EmailNotice,
    Endpoint,
    Event,
)
from tenants.webhooks.problems import Problem
from tenants.webhooks.sending import Outcome

log = structlog.get_logger(__name__)

# 10 s, 30 s, 90 s, … 18 h: ten attempts in some 27 hours.
MAX_TRIES: Final = 10
FIRST_DELAY: Final = timedelta(seconds=10)
DELAY_FACTOR: Final = 3
JITTER: Final = 0.2
# An endpoint that took nothing for so long is disabled with the next delivery that is given up.
DISABLE_AFTER: Final = timedelta(days=3)
LEASE: Final = timedelta(seconds=2 * sending.TOTAL_SECONDS)

_SENT_AT_ONCE: Final = 32
# A tenant whose servers are slow holds up nobody but itself.
_OF_ONE_TENANT: Final = 4
_USER_AGENT: Final = "Penstock-Webhooks/1 (+https://www.standardwebhooks.com)"


@dataclass(frozen=True, kw_only=True)
class DeliveryJob:
    """An attempt to be made. Without `headers` it could not be signed."""

    delivery_id: uuid.UUID
    endpoint_id: uuid.UUID
    tenant_id: uuid.UUID
    number: int
    url: str = field(repr=False)
    headers: dict[str, str] = field(repr=False)
    body: str = field(repr=False)


# Sending ----------------------------------------------------------------------------------------


def deliver_due(now: datetime | None = None, *, seconds: float = 30.0) -> int:
    """Attempt what is due, side by side, until nothing is or the time is up; return how many
    attempts were made. One that is slow keeps no other from its turn."""
    until = time.monotonic() + seconds
    made = 0
    under_way: dict[Future[Outcome], DeliveryJob] = {}
    with ThreadPoolExecutor(_SENT_AT_ONCE, thread_name_prefix="webhook") as threads:
        while True:
            if time.monotonic() < until and len(under_way) < _SENT_AT_ONCE:
                for job in claim_due(now or datetime.now(UTC), beside=under_way.values()):
                    under_way[threads.submit(_send, job)] = job
                    made += 1
            if not under_way:
                return made
            for attempt in wait(under_way, return_when=FIRST_COMPLETED).done:
                record(under_way.pop(attempt), attempt.result(), now)


def claim_due(now: datetime, *, beside: Collection[DeliveryJob] = ()) -> list[DeliveryJob]:
    """Claim what may be sent beside what is being sent already. Nobody else takes these before the
    lease runs out."""
    with operator_scope("webhook deliveries"):
        due = Delivery.objects.filter(state=DeliveryState.PENDING, next_attempt_at__lte=now)
        taken = list(
            # The condition stands here too: of a row that somebody else has just taken it is
            # asked again.
            due.filter(pk__in=_next_in_turn(due, beside))
            .select_related("endpoint", "event")
            .order_by("next_attempt_at")
            .select_for_update(skip_locked=True, of=("self",))
        )
        Delivery.objects.filter(pk__in=[delivery.pk for delivery in taken]).update(
            attempts=F("attempts") + 1, tries=F("tries") + 1, next_attempt_at=now + LEASE
        )
        return [_job(delivery, now) for delivery in taken]


def _next_in_turn(due: "QuerySet[Delivery]", beside: Collection[DeliveryJob]) -> list[uuid.UUID]:
    """Return the oldest of each tenant, few of each: its endpoints that work come first."""
    place = Window(
        RowNumber(),
        partition_by="tenant_id",
        order_by=[F("endpoint__failing_since").asc(nulls_first=True), "next_attempt_at"],
    )
    first = due.annotate(place=place).filter(place__lte=_OF_ONE_TENANT)
    waiting = first.order_by("next_attempt_at").values_list("pk", "tenant_id")
    at_it = Counter(job.tenant_id for job in beside)
    free = _SENT_AT_ONCE - len(beside)
    chosen: list[uuid.UUID] = []
    for delivery_id, tenant_id in waiting:
        if len(chosen) < free and at_it[tenant_id] < _OF_ONE_TENANT:
            chosen.append(delivery_id)
            at_it[tenant_id] += 1
    return chosen


def record(job: DeliveryJob, outcome: Outcome, now: datetime | None = None) -> None:
    """Log an attempt, and update delivery and endpoint by its outcome."""
    now = now or datetime.now(UTC)
    with operator_scope("webhook deliveries"):
        # First the endpoint, then its deliveries, as everywhere.
        endpoints = Endpoint.objects.select_for_update(no_key=True, of=("self",))
        endpoint = endpoints.filter(pk=job.endpoint_id).first()
        delivery = Delivery.objects.select_for_update().filter(pk=job.delivery_id).first()
        if endpoint is None or delivery is None:
            return  # it was removed in the meantime, with its log
        DeliveryAttempt.objects.bulk_create([_logged(job, outcome)], ignore_conflicts=True)
        _note_health(endpoint, outcome, now)
        # After its lease another attempt may have begun; that one decides then.
        if delivery.state == DeliveryState.PENDING and (
            delivery.attempts == job.number or outcome.problem is None
        ):
            _move_on(delivery, endpoint, outcome, now)
    log.info(
        "webhook_attempt",
        delivery_id=str(job.delivery_id),
        endpoint_id=str(job.endpoint_id),
        tenant_id=str(job.tenant_id),
        attempt=job.number,
        status_code=outcome.status_code,
        problem=outcome.problem,
        duration_ms=outcome.duration_ms,
    )


def delay_after(tries: int, outcome: Outcome) -> timedelta:
    """Return how long to wait after so many tries: longer each time, with jitter, and not before
    the receiver's Retry-After."""
    seconds = FIRST_DELAY.total_seconds() * DELAY_FACTOR ** (tries - 1)
    delay = timedelta(seconds=seconds * random.uniform(1 - JITTER, 1 + JITTER))
    return max(delay, timedelta(seconds=outcome.retry_after_seconds or 0))


def _job(delivery: Delivery, now: datetime) -> DeliveryJob:
    event, endpoint = delivery.event, delivery.endpoint
    body = event.to_body()
    headers = {"content-type": "application/json", "user-agent": _USER_AGENT}
    try:
        secrets = endpoint.secrets_at(now)
        headers |= signing.signed_headers(
            body, message_id=event.message_id, now=now, signed_with=secrets
        )
    except signing.SecretLost:
        headers = {}
    return DeliveryJob(
        delivery_id=delivery.pk,
        endpoint_id=endpoint.pk,
        tenant_id=delivery.tenant_id,
        number=delivery.attempts + 1,
        url=endpoint.url,
        headers=headers,
        body=body,
    )


def _send(job: DeliveryJob) -> Outcome:
    if not job.headers:
        return Outcome(started_at=datetime.now(UTC), duration_ms=0, problem=Problem.SECRET_LOST)
    try:
        return sending.send(job.url, owner=str(job.tenant_id), headers=job.headers, body=job.body)
    except Exception:
        log.exception("webhook_not_sent", delivery_id=str(job.delivery_id))
        return Outcome(started_at=datetime.now(UTC), duration_ms=0, problem=Problem.NOT_SENT)


def _logged(job: DeliveryJob, outcome: Outcome) -> DeliveryAttempt:
    return DeliveryAttempt(
        tenant_id=job.tenant_id,
        delivery_id=job.delivery_id,
        number=job.number,
        started_at=outcome.started_at,
        duration_ms=outcome.duration_ms,
        status_code=outcome.status_code,
        problem=outcome.problem or "",
        detail=outcome.detail,
        response_excerpt=outcome.response_excerpt,
    )


def _note_health(endpoint: Endpoint, outcome: Outcome, now: datetime) -> None:
    failing_since = None if outcome.problem is None else endpoint.failing_since or now
    if failing_since != endpoint.failing_since:
        endpoint.failing_since = failing_since
        endpoint.save(update_fields=["failing_since"])


def _move_on(delivery: Delivery, endpoint: Endpoint, outcome: Outcome, now: datetime) -> None:
    delivery.last_status_code = outcome.status_code
    delivery.last_problem = outcome.problem or ""
    is_over = delivery.tries >= MAX_TRIES or outcome.problem is Problem.GONE
    if outcome.problem is None:
        _finish(delivery, DeliveryState.DELIVERED, now)
    elif is_over:
        _finish(delivery, DeliveryState.FAILED, now)
    else:
        delivery.next_attempt_at = now + delay_after(delivery.tries, outcome)
    delivery.save()
    if outcome.problem is Problem.GONE:
        _disable_by_itself(endpoint, DisabledReason.GONE, now)
    elif is_over and now - (endpoint.failing_since or now) >= DISABLE_AFTER:
        _disable_by_itself(endpoint, DisabledReason.FAILING, now)


def _finish(delivery: Delivery, state: DeliveryState, now: datetime) -> None:
    delivery.state, delivery.finished_at, delivery.next_attempt_at = state.value, now, None


# An endpoint that is disabled -------------------------------------------------------------------


def disable(endpoint: Endpoint, reason: DisabledReason, now: datetime) -> None:
    """Disable an endpoint: nothing more is sent to it; what was pending has failed, and can be
    redelivered by hand. The caller has locked the endpoint."""
    endpoint.is_enabled = False
    endpoint.disabled_reason = reason.value
    endpoint.disabled_at = now
    endpoint.save(update_fields=["is_enabled", "disabled_reason", "disabled_at"])
    Delivery.objects.filter(endpoint=endpoint, state=DeliveryState.PENDING).update(
        state=DeliveryState.FAILED,
        next_attempt_at=None,
        finished_at=now,
        last_problem=Problem.ENDPOINT_DISABLED,
    )


def _disable_by_itself(endpoint: Endpoint, reason: DisabledReason, now: datetime) -> None:
    """Disable an endpoint that fails, and publish that: e-mails, and webhooks to the tenant's other
    endpoints."""
    if not endpoint.is_enabled:
        return
    disable(endpoint, reason, now)
    publish(
        endpoint.tenant_id,
        EventType.WEBHOOK_DISABLED,
        {
            "endpoint_id": endpoint.pk,
            "description": endpoint.description,
            "reason": reason.value,
            "failing_since": endpoint.failing_since,
        },
        key=f"{endpoint.pk} {now.isoformat()}",
        occurred_at=now,
    )
    log.warning(
        "webhook_endpoint_disabled",
        endpoint_id=str(endpoint.pk),
        tenant_id=str(endpoint.tenant_id),
        reason=reason.value,
    )


# The check --------------------------------------------------------------------------------------


def overdue_problems(now: datetime | None = None) -> list[str]:
    """Report, for fsck, what should have been sent an hour ago and nobody has taken up."""
    long_ago = (now or datetime.now(UTC)) - timedelta(hours=1)
    counts = {
        "events are overdue": Event.objects.filter(fanned_out_at=None, created_at__lt=long_ago),
        "webhook deliveries are overdue": Delivery.objects.filter(
            state=DeliveryState.PENDING, next_attempt_at__lt=long_ago
        ),
        "e-mail notices are overdue": EmailNotice.objects.filter(
            state="pending", next_try_at__lt=long_ago
        ),
    }
    return [
        f"{count} {what} by more than an hour; is a Celery worker of the queue `webhooks` running?"
        for what, rows in counts.items()
        if (count := rows.count())
    ]
