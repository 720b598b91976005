"""Operators' pages for notifications: endpoints, events, deliveries and e-mails."""

from datetime import UTC, datetime
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from unfold.admin import TabularInline
from unfold.contrib.filters.admin import AutocompleteSelectFilter, ChoicesDropdownFilter
from unfold.decorators import action, display
from unfold.widgets import UnfoldAdminTextInputWidget

from tenants.amount_fields import DollarsField
from tenants.errors import TenantsError
from tenants.money import dollars
from tenants.operator_admin import LogAdmin, NeverDeleted, ReadOnlyAdmin
from tenants.verbs import verb
from tenants.webhooks import deliveries, endpoints
from tenants.webhooks.models import (
    BalanceAlert,
    Delivery,
    DeliveryAttempt,
    DisabledReason,
    EmailNotice,
    Endpoint,
    Event,
)


@admin.register(Endpoint)
class EndpointAdmin(ReadOnlyAdmin):
    """A tenant's endpoint, which operators can disable, enable and test but not edit."""

    list_display = ["tenant", "url", "state", "failing_since", "created_at"]
    list_display_links = ["url"]
    list_filter = [("tenant", AutocompleteSelectFilter), "is_enabled"]
    search_fields = ["tenant__name", "url", "id__startswith"]
    list_select_related = ["tenant"]
    fields = [
        "id",
        "tenant",
        "url",
        "description",
        "event_types",
        "state",
        "disabled_at",
        "failing_since",
        "rotated_at",
        "previous_expires_at",
        "created_at",
    ]
    readonly_fields = fields
    actions_detail: ClassVar = ["disable_one", "enable_one", "test_one"]

    @display(
        description="state",
        ordering="is_enabled",
        label={"enabled": "success", "failing": "warning", "disabled": "danger"},
    )
    def state(self, endpoint: Endpoint) -> str:
        if not endpoint.is_enabled:
            return "disabled"
        return "enabled" if endpoint.failing_since is None else "failing"

    def has_act_permission(self, request: HttpRequest, object_id: Any = None) -> bool:
        return request.user.has_perm("webhooks.change_endpoint")

    @action(description="Disable", url_path="disable", permissions=["act"], icon="block")
    def disable_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        record = get_object_or_404(Endpoint, pk=object_id)
        if not self.is_sure(request):
            return self.ask_first(
                request,
                title="Disable this webhook endpoint",
                text=verb("webhooks disable").ends,
                button="Disable",
                is_final=True,
            )
        record = endpoints.locked(record.pk)
        if record.is_enabled:
            deliveries.disable(record, DisabledReason.BY_HAND, datetime.now(UTC))
            self.log_change(request, record, "Disabled.")
        messages.success(request, "Endpoint disabled.")
        return self.back_to(record)

    @action(description="Enable", url_path="enable", permissions=["act"], icon="check")
    def enable_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        record = get_object_or_404(Endpoint, pk=object_id)
        if not self.is_sure(request):
            return self.ask_first(
                request,
                title="Enable this webhook endpoint",
                text=verb("webhooks enable").ends,
                button="Enable",
            )
        record = endpoints.locked(record.pk)
        if not record.is_enabled:
            endpoints.enable(record)
            self.log_change(request, record, "Enabled.")
        messages.success(request, "Endpoint enabled.")
        return self.back_to(record)

    @action(description="Send test event", url_path="test", permissions=["act"], icon="send")
    def test_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        record = get_object_or_404(Endpoint, pk=object_id)
        if not self.is_sure(request):
            return self.ask_first(
                request,
                title="Send a test event",
                text=verb("webhooks test").ends,
                button="Send",
            )
        try:
            endpoints.send_test(record)
            messages.success(request, "Test event queued.")
        except TenantsError as error:
            messages.error(request, error.message)
        return self.back_to(record)


class BalanceAlertForm(forms.ModelForm):  # type: ignore[type-arg]
    threshold_nanos = DollarsField(
        label="Threshold",
        required=False,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        help_text="Notify at or below this balance in dollars, such as $5. Leave blank for no "
        "alert.",
    )

    class Meta:
        model = BalanceAlert
        fields = ("threshold_nanos",)  # the page adds the others


@admin.register(BalanceAlert)
class BalanceAlertAdmin(NeverDeleted):
    form = BalanceAlertForm
    list_display = ["tenant", "threshold", "is_low"]
    list_filter = [("tenant", AutocompleteSelectFilter), "is_low"]
    search_fields = ["tenant__name"]
    list_select_related = ["tenant"]
    autocomplete_fields = ["tenant"]
    fields = ["tenant", "threshold_nanos", "is_low"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return ["tenant", "is_low"] if obj else ["is_low"]

    @admin.display(description="threshold", ordering="threshold_nanos", empty_value="no alert")
    def threshold(self, alert: BalanceAlert) -> str | None:
        return None if alert.threshold_nanos is None else dollars(alert.threshold_nanos)


@admin.register(Event)
class EventAdmin(LogAdmin):
    list_display = ["type", "tenant", "occurred_at", "fanned_out_at"]
    list_filter = [("tenant", AutocompleteSelectFilter), ("type", ChoicesDropdownFilter)]
    search_fields = ["tenant__name", "key", "id__startswith"]
    list_select_related = ["tenant"]


class AttemptInline(TabularInline):  # type: ignore[misc]
    model = DeliveryAttempt
    extra = 0
    fields = ["number", "started_at", "duration_ms", "status_code", "problem", "detail"]
    readonly_fields = fields
    can_delete = False
    ordering = ["number"]

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False


@admin.register(Delivery)
class DeliveryAdmin(LogAdmin):
    list_display = [
        "event",
        "tenant",
        "state",
        "attempts",
        "last_status_code",
        "last_problem",
        "next_attempt_at",
        "created_at",
    ]
    list_filter = [
        ("tenant", AutocompleteSelectFilter),
        ("state", ChoicesDropdownFilter),
        ("last_problem", ChoicesDropdownFilter),
    ]
    search_fields = ["tenant__name", "id__startswith", "endpoint__id__startswith"]
    list_select_related = ["event", "tenant", "endpoint"]
    inlines = [AttemptInline]
    actions = ["redeliver"]

    def has_redeliver_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("webhooks.change_delivery")

    @admin.action(permissions=["redeliver"], description="Redeliver the selected deliveries")
    def redeliver(self, request: HttpRequest, selected: QuerySet[Delivery]) -> None:
        count = 0
        # In one order, so that two operators never deadlock.
        for delivery in selected.select_related("endpoint").order_by("endpoint_id", "pk"):
            try:
                endpoints.redeliver(delivery)
            except TenantsError as error:
                messages.error(request, f"{delivery}: {error.message}")
            else:
                count += 1
        messages.success(
            request,
            "1 delivery queued again." if count == 1 else f"{count} deliveries queued again.",
        )


@admin.register(EmailNotice)
class EmailNoticeAdmin(LogAdmin):
    list_display = ["event", "tenant", "membership", "state", "tries", "problem", "sent_at"]
    list_filter = [("tenant", AutocompleteSelectFilter), ("state", ChoicesDropdownFilter)]
    search_fields = ["tenant__name", "membership__user__email"]
    list_select_related = ["event", "tenant", "membership__user"]
