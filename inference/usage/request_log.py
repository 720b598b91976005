"""The log of requests: every usage record that is asked for, the newest first, and one of them with
all that became of it. Call these inside a tenant's scope, or an operator's to look at all.

A filter may match almost nothing of a long time. So pages are found in the index
`usage_request_log` alone, which holds whatever is filtered by, and only the rows of a page are
read.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from django.db.models import QuerySet

from gpu_workers.protocol.messages import Outcome
from inference.models import UsageRecord, WastedAttempt
from tenants.pagination import Order, Page, page

REQUESTS_ORDER: Final = Order(name="requests", fields={"request_id": uuid.UUID}, is_descending=True)
# Where nobody says from when.
DEFAULT_DAYS: Final = 7
MAX_DAYS: Final = 366


def page_of_requests(
    found: "QuerySet[UsageRecord]", order: Order, *, limit: int, cursor: str | None = None
) -> Page[UsageRecord]:
    """Return a page of the requests that were found, with project, key and the key's creator.
    Raises `BadCursor`."""
    ids = page(found.only("request_id"), order, limit=limit, cursor=cursor)
    wanted = [each.request_id for each in ids.rows]
    by_id = _whole().in_bulk(wanted)
    return Page(rows=[by_id[each] for each in wanted if each in by_id], next_cursor=ids.next_cursor)


def has_more_requests(found: "QuerySet[UsageRecord]", than: int) -> bool:
    """Return whether more than so many were found."""
    ids = found.order_by("-request_id").values_list("request_id")
    return bool(ids[than : than + 1])


def find_request(request_id: uuid.UUID) -> UsageRecord:
    """Return one. Raises `UsageRecord.DoesNotExist`."""
    return _whole().get(request_id=request_id)


def _whole() -> "QuerySet[UsageRecord]":
    return UsageRecord.objects.select_related("project", "api_key__created_by")


class Step(StrEnum):
    """What became of a request at a moment."""

    ADMITTED = "admitted"
    STARTED = "started"  # by the worker of the last attempt
    ATTEMPT_ENDED = "attempt_ended"  # without an end of the request: another took its place
    FIRST_TOKEN = "first_token"  # noqa: S105 - no password
    ENDED = "ended"


@dataclass(frozen=True, kw_only=True)
class TimelineEntry:
    """A step of a request. `attempt` and `worker_id` say which attempt it is about, `reason` why an
    attempt or the request ended as it did, `wasted_tokens` what nobody is billed for."""

    step: Step
    at: datetime
    since_arrival_ms: int
    attempt: int | None = None
    worker_id: str | None = None
    reason: str = ""
    wasted_tokens: int = 0


def timeline(record: UsageRecord) -> list[TimelineEntry]:
    """Return the steps of a request in order, those of attempts that did not end it among them."""
    return sorted(_steps(record), key=lambda each: (each.at, list(Step).index(each.step)))


def _steps(record: UsageRecord) -> Iterator[TimelineEntry]:
    attempt, worker = record.attempt or None, record.worker_id
    yield _entry(record, Step.ADMITTED, record.arrived_at)
    if record.queue_ms is not None:
        started = record.arrived_at + timedelta(milliseconds=record.queue_ms)
        yield _entry(record, Step.STARTED, started, attempt=attempt, worker_id=worker)
    for wasted in WastedAttempt.objects.filter(request_id=record.request_id).order_by("attempt"):
        yield _entry(
            record,
            Step.ATTEMPT_ENDED,
            wasted.ended_at,
            attempt=wasted.attempt,
            worker_id=wasted.worker_id,
            reason=wasted.reason,
            wasted_tokens=wasted.completion_tokens,
        )
    if record.ttft_ms is not None:
        first = record.arrived_at + timedelta(milliseconds=record.ttft_ms)
        yield _entry(record, Step.FIRST_TOKEN, first, attempt=attempt, worker_id=worker)
    is_completed = record.outcome == Outcome.COMPLETED.value
    yield _entry(
        record,
        Step.ENDED,
        record.finished_at,
        attempt=attempt,
        worker_id=worker,
        reason=(record.finish_reason if is_completed else record.error_code) or "",
        wasted_tokens=record.wasted_tokens,
    )


def _entry(
    record: UsageRecord,
    step: Step,
    at: datetime,
    *,
    attempt: int | None = None,
    worker_id: str | None = None,
    reason: str = "",
    wasted_tokens: int = 0,
) -> TimelineEntry:
    since = at - record.arrived_at
    return TimelineEntry(
        step=step,
        at=at,
        since_arrival_ms=max(0, round(since / timedelta(milliseconds=1))),
        attempt=attempt,
        worker_id=worker_id,
        reason=reason,
        wasted_tokens=wasted_tokens,
    )
