"""Sellers, payments, payment providers' events and the schedule of SLA credits."""

from django.contrib import admin
from unfold.contrib.filters.admin import AutocompleteSelectFilter, ChoicesDropdownFilter
from unfold.decorators import display

from tenants.billing.models import Payment, ProviderEvent, Seller, SlaCreditStep
from tenants.money import dollars_and_cents
from tenants.operator_admin import LogAdmin, NeverDeleted, OperatorAdmin, ReadOnlyAdmin


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
        ("Issuing", {"fields": ["review_days", "is_current"]}),
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


@admin.register(ProviderEvent)
class ProviderEventAdmin(LogAdmin):
    """Every webhook received, refused ones included."""

    list_display = ["received_at", "provider", "event_id", "kind", "what", "reason", "address"]
    list_filter = [("verdict", ChoicesDropdownFilter), "provider"]
    search_fields = ["event_id__exact", "address__exact"]
    search_help_text = "Exact event id or IP address"
    fields = ["received_at", "provider", "event_id", "kind", "what", "reason", "address", "body"]

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
