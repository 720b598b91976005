"""The price book, and what the GPUs cost."""

from typing import Any

from django import forms
from django.contrib import admin
from django.http import HttpRequest

from tenants.billing.models import PoolCost, Price, PriceCorrection
from tenants.billing.pricing import price_book
from tenants.money import dollars
from tenants.operator_admin import AppendOnlyAdmin

_AMOUNTS = [
    "prompt_micros_per_million_tokens",
    "cached_micros_per_million_tokens",
    "completion_micros_per_million_tokens",
]
_PERIOD = ["effective_from", "effective_until"]
_SHOWN = ["prompt", "cached", "completion"]


def _per_million(micros: int) -> str:
    return dollars(micros * 1000)


class _AmountsAdmin(AppendOnlyAdmin):
    """Shows the three prices in dollars."""

    @admin.display(description="prompt, a million tokens")
    def prompt(self, row: Price | PriceCorrection) -> str:
        return _per_million(row.prompt_micros_per_million_tokens)

    @admin.display(description="cached")
    def cached(self, row: Price | PriceCorrection) -> str:
        return _per_million(row.cached_micros_per_million_tokens)

    @admin.display(description="completion")
    def completion(self, row: Price | PriceCorrection) -> str:
        return _per_million(row.completion_micros_per_million_tokens)


class _EnteredForm(forms.ModelForm):  # type: ignore[type-arg]
    def _post_clean(self) -> None:
        """Constraints are judged as it will be entered: what holds until then gives way."""
        self.instance.validate_constraints = lambda exclude=None: None
        super()._post_clean()  # type: ignore[misc]
        del self.instance.validate_constraints
        if not self.errors:
            try:
                price_book.check(self.instance)
            except forms.ValidationError as error:
                self._update_errors(error)  # type: ignore[attr-defined]


class _EnteredAdmin(AppendOnlyAdmin):
    """Never changed: a new one takes the place of the one that holds."""

    form = _EnteredForm

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        price_book.enter(obj)


@admin.register(Price)
class PriceAdmin(_EnteredAdmin, _AmountsAdmin):
    list_display = ["model", "tier", "adapter", *_SHOWN, "batch_discount_permille", *_PERIOD]
    list_filter = ["model"]
    search_fields = ["model", "tier", "adapter"]
    fieldsets = [
        (None, {"fields": ["model", ("tier", "adapter")]}),
        ("Price", {"fields": [tuple(_AMOUNTS), "batch_discount_permille"]}),
        ("Period", {"fields": [tuple(_PERIOD)]}),
    ]


@admin.register(PriceCorrection)
class PriceCorrectionAdmin(_AmountsAdmin):
    """What a past period should have cost; `manage.py rerate` goes by it."""

    list_display = ["model", "tier", "adapter", *_SHOWN, *_PERIOD, "reason", "created_at"]
    search_fields = ["model", "reason"]
    fieldsets = [
        (None, {"fields": ["model", ("tier", "adapter")]}),
        ("Price", {"fields": [tuple(_AMOUNTS), "batch_discount_permille"]}),
        ("Period", {"fields": [tuple(_PERIOD), "reason"]}),
    ]


@admin.register(PoolCost)
class PoolCostAdmin(_EnteredAdmin):
    list_display = ["pool", "micros_per_gpu_hour", "gpus_per_worker", *_PERIOD]
    search_fields = ["pool"]
    fieldsets = [
        (None, {"fields": ["pool", ("micros_per_gpu_hour", "gpus_per_worker")]}),
        ("Period", {"fields": [tuple(_PERIOD)]}),
    ]
