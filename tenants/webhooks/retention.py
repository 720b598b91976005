"""How long events are kept, with all that was made of them, and their end."""

from datetime import UTC, datetime, timedelta
from typing import Final

from django.db.models import QuerySet

from tenants.isolation.scoping import operator_scope
from tenants.models import Tenant
from tenants.webhooks.models import (
    BalanceAlert,
    Delivery,
    DeliveryAttempt,
    DeliveryState,
    EmailNotice,
    Endpoint,
    Event,
)

KEPT: Final = timedelta(days=30)
_DELETED_AT_ONCE: Final = 1000


def delete_old_events(now: datetime | None = None) -> int:
    """Delete events with their deliveries, log and e-mails once they are older than `KEPT` and
    nothing of them is pending. Return how many events."""
    now = now or datetime.now(UTC)
    deleted = 0
    while True:
        with operator_scope("deletion of old events"):
            old = _old_events(now)[:_DELETED_AT_ONCE]
            batch = list(old.values_list("pk", flat=True))
            delete_events(Event.objects.filter(pk__in=batch))
        deleted += len(batch)
        if len(batch) < _DELETED_AT_ONCE:
            return deleted


def erase_tenant(tenant: Tenant) -> None:
    """Delete all events, endpoints and alerts of a tenant that is closed, with what others are
    writing of them right now: whoever fans an event out holds it, whoever logs an attempt holds the
    endpoint."""
    list(Endpoint.objects.filter(tenant=tenant).select_for_update(no_key=True))
    delete_events(Event.objects.filter(tenant=tenant).select_for_update())
    Endpoint.objects.filter(tenant=tenant).delete()
    BalanceAlert.objects.filter(tenant=tenant).delete()


def delete_events(events: QuerySet[Event]) -> None:
    """Delete events with their deliveries, attempts and e-mails."""
    ids = list(events.values_list("pk", flat=True))
    DeliveryAttempt.objects.filter(delivery__event__in=ids).delete()
    Delivery.objects.filter(event__in=ids).delete()
    EmailNotice.objects.filter(event__in=ids).delete()
    Event.objects.filter(pk__in=ids).delete()


def _old_events(now: datetime) -> QuerySet[Event]:
    return (
        Event.objects.filter(created_at__lt=now - KEPT, fanned_out_at__isnull=False)
        .exclude(deliveries__state=DeliveryState.PENDING)
        .exclude(emails__state="pending")
        .order_by("created_at")
    )
