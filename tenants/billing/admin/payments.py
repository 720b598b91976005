"""Sellers, payments, payment providers' events and the schedule of SLA credits."""

from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from unfold.contrib.filters.admin import (
    AutocompleteSelectFilter,
    ChoicesDropdownFilter,
    DropdownFilter,
)
from unfold.decorators import action, display
from unfold.widgets import UnfoldAdminTextInputWidget

from tenants.billing.models import (
    Payment,
    PaymentReversal,
    ProviderEvent,
    Seller,
    SlaCreditStep,
)
from tenants.billing.payments.resolving import resolve
from tenants.errors import Conflict
from tenants.money import dollars_and_cents
from tenants.operator_admin import LogAdmin, NeverDeleted, OperatorAdmin, ReadOnlyAdmin
from tenants.verbs import verb


@admin.register(Seller)
class SellerAdmin(NeverDeleted):
    list_display = ["name", "number_prefix", "payment_terms_days", "review_days", "is_current"]
    search_fields = ["name"]
    fieldsets = [
        (None, {"fields": ["name", "address", ("tax_id", "email")]}),
        (
            "Printed on every invoice",
            {"fields": [("number_prefix", "payment_terms_days"), "payment_instructions"]},
        ),
        ("Issuing", {"fields": ["review_days", "sla_credit_cap_percent", "is_current"]}),
    ]


@admin.register(SlaCreditStep)
class SlaCreditStepAdmin(OperatorAdmin):
    list_display = ["promise", "shortfall_points", "credit_percent"]
    list_filter = [("promise", ChoicesDropdownFilter)]
    search_fields = ["promise"]


@admin.register(Payment)
class PaymentAdmin(ReadOnlyAdmin):
    list_display = ["received_at", "tenant", "invoice", "amount", "provider", "reference"]
    list_filter = [("tenant", AutocompleteSelectFilter), "provider"]
    search_fields = ["reference__exact", "invoice__number__iexact", "tenant__name"]
    list_select_related = ["tenant", "invoice"]
    fields = ["tenant", "invoice", "amount", "provider", "reference", "received_at", "recorded_at"]

    @admin.display(description="amount", ordering="amount_nanos")
    def amount(self, payment: Payment) -> str:
        return dollars_and_cents(payment.amount_nanos)


@admin.register(PaymentReversal)
class PaymentReversalAdmin(ReadOnlyAdmin):
    """Refunds and disputes at the provider."""

    list_display = ["recorded_at", "tenant", "payment", "amount", "reference", "status"]
    list_filter = [("tenant", AutocompleteSelectFilter)]
    search_fields = ["reference__exact", "payment__invoice__number__iexact", "tenant__name"]
    list_select_related = ["tenant", "payment"]
    fields = ["tenant", "payment", "amount", "reference", "status", "recorded_at"]

    @admin.display(description="taken back", ordering="amount_nanos")
    def amount(self, reversal: PaymentReversal) -> str:
        sign = "-" if reversal.amount_nanos < 0 else ""
        return sign + dollars_and_cents(abs(reversal.amount_nanos))


class UnresolvedFilter(DropdownFilter):  # type: ignore[misc]
    title = "puzzling"
    parameter_name = "puzzling"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [("unresolved", "unresolved"), ("resolved", "resolved")]

    def queryset(
        self, request: HttpRequest, rows: "QuerySet[ProviderEvent]"
    ) -> "QuerySet[ProviderEvent]":
        if self.value() == "resolved":
            return rows.filter(resolution__isnull=False)
        return rows & ProviderEvent.objects.unresolved() if self.value() else rows


class NoteForm(forms.Form):
    note = forms.CharField(
        max_length=500,
        widget=UnfoldAdminTextInputWidget(),
        help_text="What was done about it. Stored permanently: no personal data.",
    )


@admin.register(ProviderEvent)
class ProviderEventAdmin(LogAdmin):
    """Every webhook received, refused ones included."""

    list_display = ["received_at", "provider", "event_id", "kind", "what", "reason", "address"]
    list_filter = [("verdict", ChoicesDropdownFilter), UnresolvedFilter, "provider"]
    list_select_related = ["resolution"]
    search_fields = ["event_id__exact", "address__exact"]
    search_help_text = "Exact event id or IP address"
    fields = ["received_at", "provider", "event_id", "kind", "what", "reason", "resolution_note",
              "address", "body"]  # fmt: skip
    actions_detail: ClassVar = ["resolve_one"]

    def has_resolve_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("billing.change_invoice")

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        is_open = ProviderEvent.objects.unresolved().filter(pk=object_id).exists()
        return list(super().get_actions_detail(request, object_id)) if is_open else []

    @action(description="Resolve", url_path="resolve", permissions=["resolve"], icon="task_alt")
    def resolve_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        event = get_object_or_404(ProviderEvent, pk=object_id)
        form = NoteForm(request.POST if self.is_sure(request) else None)
        if form.is_valid():
            try:
                resolve(event, note=form.cleaned_data["note"])
            except Conflict as error:
                messages.error(request, error.message)
            else:
                self.log_change(request, event, "Resolved.")
                messages.success(request, "Event resolved.")
            return self.back_to(event)
        return self.ask_first(
            request,
            title=f"Resolve {event}",
            text=f"{event.reason} {verb('payments resolve').ends}",
            button="Resolve",
            form=form,
        )

    @admin.display(description="resolved")
    def resolution_note(self, event: ProviderEvent) -> str:
        resolution = getattr(event, "resolution", None)
        return "" if resolution is None else f"{resolution.resolved_at:%Y-%m-%d}: {resolution.note}"

    @display(
        description="verdict",
        ordering="verdict",
        label={
            "applied": "success",
            "ignored": "info",
            "puzzling": "warning",
            "replayed": "warning",
            "forged": "danger",
            "stale": "danger",
        },
    )
    def what(self, event: ProviderEvent) -> str:
        return str(event.verdict)
