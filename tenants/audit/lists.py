"""The audit log as a tenant's people read it. Call these inside the tenant's scope."""

import uuid
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from django.db.models import QuerySet

from tenants.isolation.audit_actor import Verb
from tenants.models import AuditEvent
from tenants.pagination import NEWEST_SEQUENCE_FIRST, Order, Page, page

EVENTS_ORDER: Final = Order(name="audit events", fields=NEWEST_SEQUENCE_FIRST, is_descending=True)


def list_events(
    *,
    actor: str | None = None,
    kind: str | None = None,
    record: str | None = None,
    verb: Verb | None = None,
    since: date | None = None,
    until: date | None = None,
    limit: int,
    cursor: str | None = None,
) -> Page[AuditEvent]:
    """Return a page of events with what is left of their personal details, the newest first.

    `actor` and `record` are ids, `kind` is a record's kind, e.g. `tenants.ApiKey`; the days are UTC
    and both included. What is None is not filtered by. Raises `BadCursor`.
    """
    rows = _filtered(actor, kind, record, verb, since, until)
    return page(rows.select_related("personal"), EVENTS_ORDER, limit=limit, cursor=cursor)


def has_more_events(
    than: int,
    *,
    actor: str | None = None,
    kind: str | None = None,
    record: str | None = None,
    verb: Verb | None = None,
    since: date | None = None,
    until: date | None = None,
) -> bool:
    """Return whether `list_events` would find more than so many."""
    rows = _filtered(actor, kind, record, verb, since, until)
    return bool(rows.order_by("sequence").values_list("sequence")[than : than + 1])


def find_event(event_id: uuid.UUID) -> AuditEvent:
    """Return one of them. Raises `AuditEvent.DoesNotExist`."""
    return AuditEvent.objects.select_related("personal").get(id=event_id)


def _filtered(
    actor: str | None,
    kind: str | None,
    record: str | None,
    verb: Verb | None,
    since: date | None,
    until: date | None,
) -> QuerySet[AuditEvent]:
    equal = {"actor_id": actor, "record_kind": kind, "record_id": record, "verb": verb}
    rows = AuditEvent.objects.filter(**{name: value for name, value in equal.items() if value})
    if since is not None:
        rows = rows.filter(at__gte=_start_of(since))
    if until is not None:
        rows = rows.filter(at__lt=_start_of(until) + timedelta(days=1))
    return rows


def _start_of(day: date) -> datetime:
    return datetime.combine(day, time.min, UTC)
