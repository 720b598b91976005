"""Limits on what tenants may use: tiers, quotas and quota alerts."""

from collections.abc import Iterable
from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest
from unfold.contrib.filters.admin import AutocompleteSelectFilter, ChoicesDropdownFilter
from unfold.widgets import UnfoldAdminTextInputWidget

from tenants.access.quotas import delete_quota, save_quota
from tenants.amount_fields import CountField, DollarsField
from tenants.billing.pricing.tiers import check_rename, prices_naming
from tenants.models import Cap, Quota, QuotaAlert, Tier, check_cap_in_form
from tenants.models.quota import IN_NANOS
from tenants.operator_admin import OperatorAdmin, ReadOnlyAdmin


class TierForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Tier
        fields = ("name",)  # the page adds the others

    def clean(self) -> None:
        """Keep the name that prices know."""
        super().clean()
        if not self.instance._state.adding and "name" in self.cleaned_data:
            check_rename(self.instance, self.cleaned_data["name"])


@admin.register(Tier)
class TierAdmin(OperatorAdmin):
    form = TierForm
    list_display = [
        "name",
        "class_name",
        "priority",
        "weight",
        "requests_per_minute",
        "tokens_per_minute",
        "max_concurrent_requests",
        "ttft_target_ms",
        "price_multiplier",
    ]
    list_filter = [("service_class", ChoicesDropdownFilter)]
    search_fields = ["name"]
    fieldsets = [
        (None, {"fields": ["name", "service_class"]}),
        (
            "SLA targets",
            {"fields": [("ttft_target_ms", "inter_token_target_ms"), "uptime_percent"]},
        ),
        ("Scheduling", {"fields": [("priority", "weight"), "max_queue_seconds"]}),
        (
            "Limits per tenant",
            {
                "fields": [
                    ("requests_per_minute", "tokens_per_minute"),
                    "max_concurrent_requests",
                    ("default_max_output_tokens", "max_output_tokens"),
                    "max_context_tokens",
                ]
            },
        ),
        (
            "Adapters per tenant",
            {
                "fields": [
                    ("max_adapters", "max_adapter_versions"),
                    "max_adapter_rank",
                    ("max_adapter_bytes", "max_pinned_adapters"),
                    "max_adapter_load_seconds",
                ]
            },
        ),
        (
            "Caps per tenant",
            {
                "fields": [
                    ("max_projects", "max_api_keys"),
                    ("max_members", "max_quotas"),
                    ("max_webhooks", "max_websockets"),
                ],
                "description": "Checked where one more is made. What a tenant has already stays.",
            },
        ),
        ("Pricing", {"fields": ["price_multiplier"]}),
    ]

    @admin.display(description="service class", ordering="service_class")
    def class_name(self, tier: Tier) -> str:
        """Without the words that explain it, which take five lines here."""
        return tier.service_class

    def get_deleted_objects(self, objs: Iterable[Tier], request: HttpRequest) -> Any:
        """Count prices that name a tier among what protects it: deleting it would fail."""
        *found, protected = super().get_deleted_objects(objs, request)
        return *found, [
            *protected,
            *(f"Price: {price}" for tier in objs for price in prices_naming(tier)),
        ]


class QuotaValueForm(forms.ModelForm):  # type: ignore[type-arg]
    value = forms.CharField(
        max_length=40,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        help_text="Of spend in dollars, such as $250 or 0.05; else a whole number, such as 500, "
        "250k or 2M.",
    )

    class Meta:
        model = Quota
        fields = ("limit",)  # the page adds the others

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        quota = self.instance
        if not quota._state.adding:
            self.initial["value"] = _value_field(quota.limit).prepare_value(quota.value)

    def clean_value(self) -> int:
        """Read what was typed as what the limit counts."""
        limit = self.cleaned_data.get("limit", "")
        value: int = _value_field(limit).clean(self.cleaned_data["value"])
        return value


def _value_field(limit: str) -> CountField | DollarsField:
    return DollarsField() if limit in IN_NANOS else CountField()


class QuotaForm(QuotaValueForm):
    def clean(self) -> None:
        """Keep the tier's cap."""
        super().clean()
        tenant = self.cleaned_data.get("tenant")
        if tenant is not None and "tenant" in self.changed_data:
            check_cap_in_form(tenant.pk, Cap.QUOTAS)


@admin.register(Quota)
class QuotaAdmin(OperatorAdmin):
    form = QuotaForm
    list_display = ["tenant", "scope", "limit", "amount", "is_hard", "is_own"]
    list_display_links = ["tenant", "limit"]
    list_filter = [
        ("tenant", AutocompleteSelectFilter),
        ("limit", ChoicesDropdownFilter),
        "is_hard",
    ]
    search_fields = ["tenant__name", "project__name", "api_key__public_id__startswith"]
    list_select_related = ["tenant"]
    autocomplete_fields = ["tenant", "project", "api_key"]
    fieldsets = [
        (None, {"fields": [("limit", "value"), "is_hard", "alert_percents"]}),
        (
            "Applies to",
            {
                "fields": ["tenant", "project", "api_key"],
                "description": "Leave project and API key blank for a quota on the whole tenant; "
                "otherwise choose one of the two.",
            },
        ),
    ]

    @admin.display(description="value", ordering="value")
    def amount(self, quota: Quota) -> str:
        return quota.amount

    def save_model(self, request: HttpRequest, obj: Quota, form: Any, change: bool) -> None:
        save_quota(obj)

    def delete_model(self, request: HttpRequest, obj: Quota) -> None:
        delete_quota(obj)

    def delete_queryset(self, request: HttpRequest, queryset: Iterable[Quota]) -> None:
        for quota in queryset:
            delete_quota(quota)


@admin.register(QuotaAlert)
class QuotaAlertAdmin(ReadOnlyAdmin):
    list_display = ["tenant", "quota", "period", "percent", "used", "raised_at"]
    list_filter = [("tenant", AutocompleteSelectFilter), "percent"]
    search_fields = ["tenant__name", "period__startswith"]
    list_select_related = ["tenant", "quota"]
