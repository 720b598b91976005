"""From an event to what is made of it: a delivery for each endpoint, an e-mail for each member."""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from tenants.isolation.scoping import operator_scope
from tenants.models import Membership
from tenants.permissions import Role
from tenants.webhooks.event_types import KINDS, EventType, Kind
from tenants.webhooks.models import Delivery, EmailNotice, Endpoint, Event

_EVENTS_AT_ONCE: Final = 500


def fan_out_events(now: datetime | None = None) -> int:
    """Make a delivery for each endpoint and an e-mail for each member that are to have an event.
    Return how many events were fanned out."""
    now = now or datetime.now(UTC)
    with operator_scope("fan-out of events"):
        waiting = Event.objects.filter(fanned_out_at=None).order_by("created_at")
        events = list(waiting.select_for_update(skip_locked=True)[:_EVENTS_AT_ONCE])
        if not events:
            return 0
        tenant_ids = {event.tenant_id for event in events}
        _make_deliveries(events, tenant_ids, now)
        _make_emails(events, tenant_ids, now)
        Event.objects.filter(pk__in=[event.pk for event in events]).update(fanned_out_at=now)
    return len(events)


def _make_deliveries(events: Sequence[Event], tenant_ids: set[uuid.UUID], now: datetime) -> None:
    endpoints = list(Endpoint.objects.filter(tenant__in=tenant_ids, is_enabled=True))
    Delivery.objects.bulk_create(
        [
            Delivery(tenant_id=event.tenant_id, event=event, endpoint=endpoint, next_attempt_at=now)
            for event in events
            for endpoint in endpoints
            if endpoint.tenant_id == event.tenant_id and endpoint.wants(event.type)
        ],
        ignore_conflicts=True,
    )


def _make_emails(events: Sequence[Event], tenant_ids: set[uuid.UUID], now: datetime) -> None:
    members = list(
        Membership.objects.filter(tenant__in=tenant_ids, user__is_active=True).only(
            "tenant_id", "role", "gets_alerts"
        )
    )
    EmailNotice.objects.bulk_create(
        [
            EmailNotice(tenant_id=event.tenant_id, event=event, membership=member, next_try_at=now)
            for event in events
            for member in members
            if member.tenant_id == event.tenant_id
            and _is_mailed(KINDS[EventType(event.type)], member)
        ],
        ignore_conflicts=True,
    )


def _is_mailed(kind: Kind, member: Membership) -> bool:
    return Role(member.role) in kind.mailed_to and (member.gets_alerts or kind.is_always_mailed)
