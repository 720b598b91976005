"""Webhook endpoints of a tenant, their secrets, and the log of what was sent to them. A secret is
shown in the one answer that makes it, and never again."""

import uuid
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Final

from msgspec import UNSET, Meta, UnsetType
from rest_framework.response import Response

from inference.management_api.bodies import Fields, Nothing, given_fields
from inference.management_api.lists import ListQuery, listed
from inference.management_api.view import TenantView
from tenants.pagination import NEWEST_FIRST, Order, page
from tenants.permissions import Permission
from tenants.webhooks.endpoints import (
    LONGEST_OVERLAP,
    add_endpoint,
    change_endpoint,
    redeliver,
    remove_endpoint,
    rotate_secret,
    send_test,
)
from tenants.webhooks.models import Delivery, DeliveryAttempt, Endpoint
from tenants.webhooks.models.endpoint import MAX_URL_CHARACTERS
from tenants.webhooks.problems import SENTENCES, Problem

_ORDER: Final = Order(name="webhook endpoints", fields=NEWEST_FIRST, is_descending=True)
_DELIVERIES: Final = Order(name="webhook deliveries", fields=NEWEST_FIRST, is_descending=True)

_Url = Annotated[str, Meta(min_length=1, max_length=MAX_URL_CHARACTERS)]
_Types = Annotated[list[Annotated[str, Meta(max_length=60)]], Meta(max_length=50)]
_Description = Annotated[str, Meta(max_length=200)]
_Overlap = Annotated[int, Meta(ge=0, le=int(LONGEST_OVERLAP.total_seconds()))]


class NewEndpoint(Fields):
    """`event_types` None is all, those to come too."""

    url: _Url
    event_types: _Types | None = None
    description: _Description = ""


class EndpointChange(Fields):
    """What is left out stays."""

    url: _Url | UnsetType = UNSET
    event_types: _Types | UnsetType | None = UNSET
    description: _Description | UnsetType = UNSET
    is_enabled: bool | UnsetType = UNSET


class Rotation(Fields):
    """For how long deliveries are signed with the secret before it as well."""

    overlap_seconds: _Overlap = 24 * 3600


class EndpointsView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW_WEBHOOKS, "POST": Permission.WRITE_WEBHOOKS}
    parameters: ClassVar = {"GET": ListQuery}

    def get(self) -> Response:
        rows = Endpoint.objects.all()
        found = page(rows, _ORDER, limit=self.query.limit, cursor=self.query.cursor)
        return listed(found, _rendered)

    def post(self) -> Response:
        new = add_endpoint(self.tenant, **given_fields(self.body(NewEndpoint)))
        return Response(_rendered(new.endpoint) | {"secret": new.secret.text}, status=201)


class OneEndpointView(TenantView):
    permissions: ClassVar = {
        "GET": Permission.VIEW_WEBHOOKS,
        "PATCH": Permission.WRITE_WEBHOOKS,
        "DELETE": Permission.WRITE_WEBHOOKS,
    }

    def get(self, endpoint_id: uuid.UUID) -> Response:
        return Response(_rendered(Endpoint.objects.get(id=endpoint_id)))

    def patch(self, endpoint_id: uuid.UUID) -> Response:
        endpoint = Endpoint.objects.get(id=endpoint_id)
        changed = change_endpoint(endpoint, **given_fields(self.body(EndpointChange)))
        return Response(_rendered(changed))

    def delete(self, endpoint_id: uuid.UUID) -> Response:
        endpoint = Endpoint.objects.get(id=endpoint_id)
        self.body(Nothing)
        remove_endpoint(endpoint)
        return Response(status=204)


class RotateSecretView(TenantView):
    permissions: ClassVar = {"POST": Permission.WRITE_WEBHOOKS}

    def post(self, endpoint_id: uuid.UUID) -> Response:
        endpoint = Endpoint.objects.get(id=endpoint_id)
        overlap = timedelta(seconds=self.body(Rotation).overlap_seconds)
        new = rotate_secret(endpoint, overlap=overlap)
        return Response(_rendered(new.endpoint) | {"secret": new.secret.text})


class SendTestView(TenantView):
    permissions: ClassVar = {"POST": Permission.WRITE_WEBHOOKS}

    def post(self, endpoint_id: uuid.UUID) -> Response:
        endpoint = Endpoint.objects.get(id=endpoint_id)
        self.body(Nothing)
        return Response(_rendered_delivery(send_test(endpoint)), status=201)


class DeliveriesView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW_WEBHOOKS}
    parameters: ClassVar = {"GET": ListQuery}

    def get(self, endpoint_id: uuid.UUID) -> Response:
        endpoint = Endpoint.objects.get(id=endpoint_id)
        rows = Delivery.objects.filter(endpoint=endpoint).select_related("event")
        found = page(rows, _DELIVERIES, limit=self.query.limit, cursor=self.query.cursor)
        return listed(found, _rendered_delivery)


class OneDeliveryView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW_WEBHOOKS}

    def get(self, endpoint_id: uuid.UUID, delivery_id: uuid.UUID) -> Response:
        delivery = _delivery(endpoint_id, delivery_id)
        log = DeliveryAttempt.objects.filter(delivery=delivery)
        # Balances and invoices are not for all who may look at webhooks.
        may_read = Permission.VIEW_BALANCE in self.access.permissions
        return Response(
            _rendered_delivery(delivery)
            | {
                "data": delivery.event.data if may_read else None,
                "log": [_rendered_attempt(attempt) for attempt in log.order_by("number")],
            }
        )


class RedeliverView(TenantView):
    permissions: ClassVar = {"POST": Permission.WRITE_WEBHOOKS}

    def post(self, endpoint_id: uuid.UUID, delivery_id: uuid.UUID) -> Response:
        delivery = _delivery(endpoint_id, delivery_id)
        self.body(Nothing)
        return Response(_rendered_delivery(redeliver(delivery)))


def _delivery(endpoint_id: uuid.UUID, delivery_id: uuid.UUID) -> Delivery:
    deliveries = Delivery.objects.select_related("event", "endpoint")
    return deliveries.get(id=delivery_id, endpoint_id=endpoint_id)


def _rendered(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "object": "webhook_endpoint",
        "id": endpoint.id,
        "url": endpoint.url,
        "event_types": endpoint.event_types,
        "description": endpoint.description,
        "is_enabled": endpoint.is_enabled,
        "disabled_reason": endpoint.disabled_reason or None,
        "disabled_at": endpoint.disabled_at,
        "failing_since": endpoint.failing_since,
        "created_at": endpoint.created_at,
        "rotated_at": endpoint.rotated_at,
        "previous_secret_expires_at": endpoint.previous_expires_at,
    }


def _rendered_delivery(delivery: Delivery) -> dict[str, Any]:
    return {
        "object": "webhook_delivery",
        "id": delivery.id,
        "endpoint_id": delivery.endpoint_id,
        "webhook_id": delivery.event.message_id,
        "type": delivery.event.type,
        "state": delivery.state,
        "attempts": delivery.attempts,
        "next_attempt_at": delivery.next_attempt_at,
        "last_status_code": delivery.last_status_code,
        "last_problem": _problem(delivery.last_problem),
        "created_at": delivery.created_at,
        "finished_at": delivery.finished_at,
    }


def _rendered_attempt(attempt: DeliveryAttempt) -> dict[str, Any]:
    return {
        "number": attempt.number,
        "started_at": attempt.started_at,
        "duration_ms": attempt.duration_ms,
        "status_code": attempt.status_code,
        "problem": _problem(attempt.problem),
        "detail": attempt.detail or None,
        "response_excerpt": attempt.response_excerpt,
    }


def _problem(word: str) -> dict[str, str] | None:
    return {"code": word, "message": SENTENCES[Problem(word)]} if word else None
