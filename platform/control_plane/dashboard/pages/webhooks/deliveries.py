"""What was sent to a webhook endpoint: its deliveries, and one of them with each attempt."""

import json
import uuid
from typing import ClassVar

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from control_plane.dashboard.actions import attempt
from control_plane.dashboard.forms import FilterForm
from control_plane.dashboard.lists import ROWS, page_of
from control_plane.dashboard.page import TenantPage
from control_plane.dashboard.pages.webhooks.endpoints import host_of
from tenants.permissions import Permission, roles_with
from tenants.webhooks.endpoints import redeliver
from tenants.webhooks.lists import find_delivery, find_endpoint, list_deliveries
from tenants.webhooks.models import Delivery, DeliveryState
from tenants.webhooks.problems import SENTENCES, Problem


class DeliveryFilters(FilterForm):
    state = forms.TypedChoiceField(
        choices=[("", "All"), *((state.value, state.value) for state in DeliveryState)],
        coerce=DeliveryState,
    )


class WebhookPage(TenantPage):
    """An endpoint with its deliveries."""

    permissions: ClassVar = {"GET": Permission.VIEW_WEBHOOKS}
    template_name = "dashboard/webhooks/one.html"
    section = "webhooks"

    def get(self, request: HttpRequest, endpoint_id: uuid.UUID) -> HttpResponse:
        endpoint = find_endpoint(endpoint_id)
        filters = DeliveryFilters(request.GET)
        chosen = filters.chosen()
        page = page_of(
            request,
            lambda cursor: list_deliveries(endpoint, **chosen, limit=ROWS, cursor=cursor),
        )
        context = {
            "endpoint": endpoint,
            "host": host_of(endpoint),
            "filters": filters,
            "is_filtered": bool(chosen),
            "page": page,
            "rows": [(each, _sentence(each.last_problem)) for each in page.rows],
        }
        return self.show(context | self.write_access(Permission.WRITE_WEBHOOKS), fragment="list")


class DeliveryPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW_WEBHOOKS}
    template_name = "dashboard/webhooks/delivery.html"
    section = "webhooks"

    def get(
        self, request: HttpRequest, endpoint_id: uuid.UUID, delivery_id: uuid.UUID
    ) -> HttpResponse:
        delivery = find_delivery(endpoint_id, delivery_id)
        # Balances and invoices are not for all who may look at webhooks.
        may_read = self.access.may(Permission.VIEW_BALANCE)
        context = {
            "delivery": delivery,
            "endpoint": delivery.endpoint,
            "host": host_of(delivery.endpoint),
            "sentence": _sentence(delivery.last_problem),
            "attempts": [(each, _sentence(each.problem)) for each in delivery.log.all()],
            "payload": _payload(delivery) if may_read else None,
            "readers": roles_with(Permission.VIEW_BALANCE),
        }
        return self.show(context | self.write_access(Permission.WRITE_WEBHOOKS))


class RedeliverPage(TenantPage):
    permissions: ClassVar = {"POST": Permission.WRITE_WEBHOOKS}
    section = "webhooks"

    def post(
        self, request: HttpRequest, endpoint_id: uuid.UUID, delivery_id: uuid.UUID
    ) -> HttpResponse:
        delivery = find_delivery(endpoint_id, delivery_id)
        if attempt(request, lambda: redeliver(delivery)):
            messages.success(request, "It is sent again now: reload to see the answer.")
        args = [self.tenant.id, endpoint_id, delivery_id]
        return self.go_to(reverse("dashboard:delivery", args=args))


def _sentence(problem: str) -> str:
    return SENTENCES[Problem(problem)] if problem else ""


def _payload(delivery: Delivery) -> str:
    """Return the body that is sent, with line ends for people."""
    return json.dumps(json.loads(delivery.event.to_body()), indent=2, ensure_ascii=False)
