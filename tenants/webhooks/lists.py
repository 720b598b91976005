"""Endpoints and what was sent to them, as a tenant's people read it. Call these inside the tenant's
scope."""

import uuid
from dataclasses import dataclass
from typing import Final

from tenants.pagination import NEWEST_FIRST, Order, Page, page
from tenants.webhooks.models import Delivery, DeliveryState, Endpoint

ENDPOINTS_ORDER: Final = Order(name="webhook endpoints", fields=NEWEST_FIRST, is_descending=True)
DELIVERIES_ORDER: Final = Order(name="webhook deliveries", fields=NEWEST_FIRST, is_descending=True)


@dataclass(frozen=True, kw_only=True)
class DeliveryCount:
    """How many deliveries there are, and how many of them are not over."""

    total: int
    pending: int


def list_endpoints(*, limit: int, cursor: str | None = None) -> Page[Endpoint]:
    """Return a page of endpoints, the newest first. Raises `BadCursor`."""
    return page(Endpoint.objects.all(), ENDPOINTS_ORDER, limit=limit, cursor=cursor)


def find_endpoint(endpoint_id: uuid.UUID) -> Endpoint:
    """Return one of them. Raises `Endpoint.DoesNotExist`."""
    return Endpoint.objects.get(id=endpoint_id)


def list_deliveries(
    endpoint: Endpoint,
    *,
    state: DeliveryState | None = None,
    limit: int,
    cursor: str | None = None,
) -> Page[Delivery]:
    """Return a page of an endpoint's deliveries with their events, the newest first. Raises
    `BadCursor`."""
    rows = Delivery.objects.filter(endpoint=endpoint).select_related("event")
    if state is not None:
        rows = rows.filter(state=state)
    return page(rows, DELIVERIES_ORDER, limit=limit, cursor=cursor)


def count_deliveries(endpoint: Endpoint) -> DeliveryCount:
    """Count what goes with an endpoint when it is removed."""
    rows = Delivery.objects.filter(endpoint=endpoint)
    return DeliveryCount(
        total=rows.count(), pending=rows.filter(state=DeliveryState.PENDING).count()
    )


def find_delivery(endpoint_id: uuid.UUID, delivery_id: uuid.UUID) -> Delivery:
    """Return a delivery with its event, its endpoint and the log of its attempts. Raises
    `Delivery.DoesNotExist`."""
    return (
        Delivery.objects.select_related("event", "endpoint")
        .prefetch_related("log")
        .get(id=delivery_id, endpoint_id=endpoint_id)
    )
