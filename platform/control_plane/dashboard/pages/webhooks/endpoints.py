"""Webhooks: where events are sent, with which secret, and what may be done with an endpoint."""

import uuid
from datetime import timedelta
from typing import Any, ClassVar, Final
from urllib.parse import urlsplit

from django import forms
from django.contrib import messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html

from control_plane.dashboard.actions import NameTyped, attempt
from control_plane.dashboard.forms import ChoicesWhereUsed, PageForm
from control_plane.dashboard.lists import ROWS, page_of
from control_plane.dashboard.page import TenantPage
from tenants.permissions import Permission
from tenants.webhooks.endpoints import (
    add_endpoint,
    change_endpoint,
    remove_endpoint,
    rotate_secret,
    send_test,
    unreachable_reason,
)
from tenants.webhooks.event_types import KINDS, SUBSCRIBABLE
from tenants.webhooks.lists import count_deliveries, find_endpoint, list_endpoints
from tenants.webhooks.models import Endpoint
from tenants.webhooks.models.endpoint import MAX_URL_CHARACTERS

ALL_EVENTS: Final = "all"
SOME_EVENTS: Final = "some"
_EVENT_TYPES: Final = [
    (kind.value, format_html("<code>{}</code><br>{}", kind.value, KINDS[kind].sentence))
    for kind in SUBSCRIBABLE
]


class EndpointForm(PageForm):
    """What a tenant says of an endpoint. The event types are asked for where not all are sent."""

    url = forms.CharField(
        label="URL",
        max_length=MAX_URL_CHARACTERS,
        widget=forms.TextInput(attrs={"inputmode": "url", "autocomplete": "off"}),
        help_text="Begins with https:// and is reachable from the internet.",
    )
    events = forms.ChoiceField(
        choices=[
            (ALL_EVENTS, "All events, including types added later"),
            (SOME_EVENTS, "Only the types chosen below"),
        ],
        initial=ALL_EVENTS,
        widget=forms.RadioSelect,
    )
    event_types = ChoicesWhereUsed(label="Event types", choices=_EVENT_TYPES)
    description = forms.CharField(
        max_length=200, required=False, help_text="What receives the events, for your colleagues."
    )

    @classmethod
    def describing(cls, endpoint: Endpoint) -> "EndpointForm":
        """Return the form with what an endpoint is."""
        return cls(
            initial={
                "url": endpoint.url,
                "events": ALL_EVENTS if endpoint.event_types is None else SOME_EVENTS,
                "event_types": endpoint.event_types or [],
                "description": endpoint.description,
            }
        )

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("events") == SOME_EVENTS and not cleaned.get("event_types"):
            needed = ValidationError("Choose at least one event type.", code="required")
            if "event_types" not in self.errors:
                self.add_error("event_types", needed)
        return cleaned

    @property
    def fields_of_endpoint(self) -> dict[str, Any]:
        chosen = self.cleaned_data
        is_all = chosen["events"] == ALL_EVENTS
        return {
            "url": chosen["url"],
            "event_types": None if is_all else chosen["event_types"],
            "description": chosen["description"],
        }


class RotationForm(PageForm):
    overlap = forms.TypedChoiceField(
        label="Sign with the old secret as well for",
        choices=[
            (24, "24 hours"),
            (1, "1 hour"),
            (7 * 24, "7 days"),
            (0, "no time: replace it now"),
        ],
        coerce=int,
        help_text="Meanwhile deliveries have a signature of each secret, so none is refused while "
        "you change it over.",
    )


class WebhooksPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW_WEBHOOKS}
    template_name = "dashboard/webhooks/list.html"
    section = "webhooks"

    def get(self, request: HttpRequest) -> HttpResponse:
        page = page_of(request, lambda cursor: list_endpoints(limit=ROWS, cursor=cursor))
        return self.show(
            {
                "page": page,
                "most": self.tenant.tier.max_webhooks,
                **self.write_access(Permission.WRITE_WEBHOOKS),
            },
            fragment="list",
        )


class ChangingPage(TenantPage):
    """Base of the pages that make or change an endpoint."""

    permissions: ClassVar = {"GET": Permission.WRITE_WEBHOOKS, "POST": Permission.WRITE_WEBHOOKS}
    section = "webhooks"

    def list_address(self) -> str:
        return reverse("dashboard:webhooks", args=[self.tenant.id])

    def address_of(self, endpoint: Endpoint) -> str:
        return reverse("dashboard:webhook", args=[self.tenant.id, endpoint.id])


class AddressPage(ChangingPage):
    """Base of the pages that take a URL."""

    asks_first = True
    unreachable: ValidationError | None = None

    def ask_first(self, request: HttpRequest, **_: Any) -> None:
        form = EndpointForm(request.POST)
        if form.is_valid():
            self.unreachable = unreachable_reason(self.tenant.id, form.cleaned_data["url"])


class NewWebhookPage(AddressPage):
    template_name = "dashboard/webhooks/new.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.show({"form": EndpointForm()})

    def post(self, request: HttpRequest) -> HttpResponse:
        form = EndpointForm(request.POST)
        made = None
        if form.is_valid():
            fields = form.fields_of_endpoint | {"unreachable": self.unreachable}
            made = form.perform(lambda: add_endpoint(self.tenant, **fields))
        if made is None:
            return self.show({"form": form}, fragment="form", status=422)
        return self.show({"made": made.endpoint, "secret": made.secret.text}, fragment="secret")


class WebhookSettingsPage(AddressPage):
    template_name = "dashboard/webhooks/settings.html"

    def get(self, request: HttpRequest, endpoint_id: uuid.UUID) -> HttpResponse:
        endpoint = find_endpoint(endpoint_id)
        return self.show({"endpoint": endpoint, "form": EndpointForm.describing(endpoint)})

    def post(self, request: HttpRequest, endpoint_id: uuid.UUID) -> HttpResponse:
        endpoint = find_endpoint(endpoint_id)
        form = EndpointForm(request.POST)
        changed = None
        if form.is_valid():
            fields = form.fields_of_endpoint | {"unreachable": self.unreachable}
            changed = form.perform(lambda: change_endpoint(endpoint, **fields))
        if changed is None:
            return self.show({"endpoint": endpoint, "form": form}, fragment="form", status=422)
        messages.success(request, "The webhook was saved.")
        return self.go_to(self.address_of(endpoint))


class RotateWebhookPage(ChangingPage):
    template_name = "dashboard/webhooks/rotate.html"

    def get(self, request: HttpRequest, endpoint_id: uuid.UUID) -> HttpResponse:
        return self.show({"endpoint": find_endpoint(endpoint_id), "form": RotationForm()})

    def post(self, request: HttpRequest, endpoint_id: uuid.UUID) -> HttpResponse:
        endpoint = find_endpoint(endpoint_id)
        form = RotationForm(request.POST)
        made = None
        if form.is_valid():
            overlap = timedelta(hours=form.cleaned_data["overlap"])
            made = form.perform(lambda: rotate_secret(endpoint, overlap=overlap))
        if made is None:
            return self.show({"endpoint": endpoint, "form": form}, fragment="form", status=422)
        return self.show({"endpoint": made.endpoint, "secret": made.secret.text}, fragment="secret")


class WebhookSwitchPage(ChangingPage):
    """Turns an endpoint off, or on again."""

    template_name = "dashboard/webhooks/switch.html"
    enables = False

    def get(self, request: HttpRequest, endpoint_id: uuid.UUID) -> HttpResponse:
        endpoint = find_endpoint(endpoint_id)
        count = count_deliveries(endpoint)
        return self.show({"endpoint": endpoint, "enables": self.enables, "count": count})

    def post(self, request: HttpRequest, endpoint_id: uuid.UUID) -> HttpResponse:
        endpoint = find_endpoint(endpoint_id)
        if attempt(request, lambda: change_endpoint(endpoint, is_enabled=self.enables)):
            word = "on" if self.enables else "off"
            messages.success(request, f"The webhook was turned {word}.")
        return self.go_to(self.address_of(endpoint))


class WebhookTestPage(ChangingPage):
    permissions: ClassVar = {"POST": Permission.WRITE_WEBHOOKS}

    def post(self, request: HttpRequest, endpoint_id: uuid.UUID) -> HttpResponse:
        endpoint = find_endpoint(endpoint_id)
        delivery = attempt(request, lambda: send_test(endpoint))
        if delivery is None:
            return self.go_to(self.address_of(endpoint))
        messages.success(request, "A test event is on its way: reload to see the answer.")
        args = [self.tenant.id, endpoint.id, delivery.id]
        return self.go_to(reverse("dashboard:delivery", args=args))


class DeleteWebhookPage(ChangingPage):
    template_name = "dashboard/webhooks/delete.html"

    def get(self, request: HttpRequest, endpoint_id: uuid.UUID) -> HttpResponse:
        endpoint = find_endpoint(endpoint_id)
        return self._asking(endpoint, NameTyped(name=host_of(endpoint)))

    def post(self, request: HttpRequest, endpoint_id: uuid.UUID) -> HttpResponse:
        endpoint = find_endpoint(endpoint_id)
        form = NameTyped(request.POST, name=host_of(endpoint))
        if not form.is_valid():
            return self._asking(endpoint, form, status=422)
        remove_endpoint(endpoint)
        messages.success(request, f"The webhook to {host_of(endpoint)} was deleted.")
        return self.go_to(self.list_address())

    def _asking(self, endpoint: Endpoint, form: NameTyped, *, status: int = 200) -> HttpResponse:
        context = {"endpoint": endpoint, "count": count_deliveries(endpoint), "form": form}
        return self.show(context, status=status)


def host_of(endpoint: Endpoint) -> str:
    """Return what an endpoint is called by: the host of its URL."""
    return urlsplit(endpoint.url).hostname or "webhook"
