"""The price book and the cost of GPUs."""

from datetime import datetime
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from unfold.decorators import action
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from tenants.amount_fields import MicroDollarsField
from tenants.billing.models import PoolCost, Price, PriceCorrection, StoragePrice
from tenants.billing.pricing import price_book
from tenants.models import Tier
from tenants.money import dollars
from tenants.operator_admin import AppendOnlyAdmin
from tenants.operator_forms import PercentField

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
    """Shows prices in dollars and the discount in percent."""

    period_fields = _PERIOD

    @admin.display(description="prompt / 1M tokens")
    def prompt(self, row: Price | PriceCorrection) -> str:
        return _per_million(row.prompt_micros_per_million_tokens)

    @admin.display(description="cached / 1M tokens")
    def cached(self, row: Price | PriceCorrection) -> str:
        return _per_million(row.cached_micros_per_million_tokens)

    @admin.display(description="completion / 1M tokens")
    def completion(self, row: Price | PriceCorrection) -> str:
        return _per_million(row.completion_micros_per_million_tokens)

    @admin.display(description="batch discount", ordering="batch_discount_permille")
    def batch_discount(self, row: Price | PriceCorrection) -> str:
        return f"{row.batch_discount_permille / 10:g}%"

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fields of the form for a new record, or what shows one that is entered."""
        discount = "batch_discount_permille" if obj is None else "batch_discount"
        amounts = _AMOUNTS if obj is None else _SHOWN
        return [
            (None, {"fields": ["model", ("tier", "adapter")]}),
            ("Price", {"fields": [tuple(amounts), discount]}),
            ("Period", {"fields": self.period_fields}),
        ]


def _models() -> list[tuple[str, str]]:
    return [("", "---------"), *((name, name) for name in price_book.priced_models())]


def _tiers() -> list[tuple[str, str]]:
    names = Tier.objects.order_by("name").values_list("name", flat=True)
    return [("", "all tiers"), *((name, name) for name in names)]


def _price(label: str) -> MicroDollarsField:
    return MicroDollarsField(
        label=label, widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"})
    )


class _TokenPricesForm(forms.ModelForm):  # type: ignore[type-arg]
    model = forms.ChoiceField(choices=_models, widget=UnfoldAdminSelectWidget)
    tier = forms.ChoiceField(
        choices=_tiers,
        required=False,
        widget=UnfoldAdminSelectWidget,
        help_text="For all tiers the tier multiplier applies; a tier-specific price is used as is.",
    )
    prompt_micros_per_million_tokens = _price("Prompt, $ per 1M tokens")
    cached_micros_per_million_tokens = _price("Cached prompt, $ per 1M tokens")
    completion_micros_per_million_tokens = _price("Completion, $ per 1M tokens")
    batch_discount_permille = PercentField(
        label="Batch discount (%)",
        initial=0,
        help_text="Discount for service class batch: 12.5 is an eighth off.",
    )


class _EnteredForm(forms.ModelForm):  # type: ignore[type-arg]
    def _post_clean(self) -> None:
        """Check constraints as of the moment of entry, when the current record has been closed."""
        self.instance.validate_constraints = lambda exclude=None: None
        super()._post_clean()  # type: ignore[misc]
        del self.instance.validate_constraints
        if not self.errors:
            try:
                price_book.check(self.instance)
            except forms.ValidationError as error:
                self._update_errors(error)  # type: ignore[attr-defined]


class _PriceForm(_EnteredForm, _TokenPricesForm):
    pass


class EndForm(forms.Form):
    at = forms.DateTimeField(
        label="When (UTC)",
        required=False,
        help_text="Such as 2030-01-31 18:00; blank ends it now.",
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
    )


class _EnteredAdmin(AppendOnlyAdmin):
    """A record that is never changed: a new one replaces the one in effect."""

    form = _EnteredForm

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        price_book.enter(obj)


@admin.register(Price)
class PriceAdmin(_EnteredAdmin, _AmountsAdmin):
    form = _PriceForm
    list_display = ["model", "tier", "adapter", *_SHOWN, "batch_discount", *_PERIOD]
    list_filter = ["model"]
    search_fields = ["model", "tier", "adapter"]
    actions_detail: ClassVar = ["end_one"]

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: Any = None
    ) -> HttpResponse:
        """Show what was understood before it is entered: a price is never changed."""
        is_first = request.method == "POST" and not self.is_sure(request)
        if is_first and self.has_add_permission(request):
            form = self.get_form(request)(request.POST)
            if form.is_valid():
                given = {name: request.POST.getlist(name) for name in request.POST}
                given.pop("csrfmiddlewaretoken", None)
                return self.ask_first(
                    request,
                    title=f"New price: {form.instance.what_for}",
                    text=_understood(form.instance),
                    button="Enter",
                    repeat=given,
                )
        answer: HttpResponse = super().add_view(request, form_url, extra_context)
        return answer

    def has_end_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("billing.add_price")

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        is_open = Price.objects.filter(pk=object_id, effective_until=None).exists()
        return list(super().get_actions_detail(request, object_id)) if is_open else []

    @action(description="End", url_path="end", permissions=["end"], icon="event_busy")
    def end_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        price = get_object_or_404(Price, pk=object_id)
        form = EndForm(request.POST if self.is_sure(request) else None)
        if form.is_valid():
            try:
                price_book.end(price, form.cleaned_data["at"])
            except ValidationError as refusal:
                form.add_error(None, refusal)
            else:
                ended = f"{price.effective_until:%-d %B %Y, %H:%M} UTC"
                messages.success(request, f"The price of {price.what_for} ends: {ended}.")
                return self.back_to(price)
        return self.ask_first(
            request,
            title=f"End the price of {price.what_for}",
            text=f"This {price_book.consequence_of_ending(price)}. A new price for the same model "
            "takes its place by itself, without this.",
            button="End the price",
            form=form,
            is_final=True,
        )


def _understood(price: Price) -> str:
    """Say what a new price is, what it takes the place of, and what a request costs by it."""
    begins = price.effective_from
    when = f"from {begins:%-d %B %Y, %H:%M} UTC" if isinstance(begins, datetime) else "from now"
    if price.effective_until:
        when += f" until {price.effective_until:%-d %B %Y, %H:%M} UTC"
    before = price_book.open_price(price.model, price.tier, price.adapter)
    return (
        f"{_amounts(price)}, per million tokens, {when}. "
        f"{f'Before: {_amounts(before)}.' if before else 'There was no such price before.'} "
        f"A request of {_PROMPT:,} prompt and {_COMPLETION:,} completion tokens costs "
        f"{_example(price)}{f', {_example(before)} before' if before else ''}."
    )


_PROMPT, _COMPLETION = 1000, 500


def _amounts(price: Price) -> str:
    discount = price.batch_discount_permille
    return (
        f"{_per_million(price.prompt_micros_per_million_tokens)} prompt, "
        f"{_per_million(price.cached_micros_per_million_tokens)} cached, "
        f"{_per_million(price.completion_micros_per_million_tokens)} completion"
        + (f", batch {discount / 10:g}% less" if discount else "")
    )


def _example(price: Price) -> str:
    picos = (
        price.prompt_micros_per_million_tokens * _PROMPT
        + price.completion_micros_per_million_tokens * _COMPLETION
    )
    return dollars(picos // 1000)


@admin.register(PriceCorrection)
class PriceCorrectionAdmin(_AmountsAdmin):
    """The correct price of a past period, from which `manage.py rerate` posts the difference."""

    form = _TokenPricesForm
    list_display = ["model", "tier", "adapter", *_SHOWN, *_PERIOD, "reason", "created_at"]
    search_fields = ["model", "reason"]
    period_fields = [*_PERIOD, "reason"]


class _PoolCostForm(_EnteredForm):
    micros_per_gpu_hour = _price("Cost per GPU hour, $")


@admin.register(PoolCost)
class PoolCostAdmin(_EnteredAdmin):
    form = _PoolCostForm
    list_display = ["pool", "cost", "gpus_per_worker", *_PERIOD]
    search_fields = ["pool"]

    @admin.display(description="cost per GPU hour", ordering="micros_per_gpu_hour")
    def cost(self, row: PoolCost) -> str:
        return dollars(row.micros_per_gpu_hour * 1000)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        cost = "micros_per_gpu_hour" if obj is None else "cost"
        return [
            (None, {"fields": ["pool", (cost, "gpus_per_worker")]}),
            ("Period", {"fields": _PERIOD}),
        ]


class _StoragePriceForm(_EnteredForm):
    micros_per_gib_month = _price("Price per GiB and month, $")


@admin.register(StoragePrice)
class StoragePriceAdmin(_EnteredAdmin):
    form = _StoragePriceForm
    list_display = ["price", *_PERIOD]

    @admin.display(description="price per GiB and month", ordering="micros_per_gib_month")
    def price(self, row: StoragePrice) -> str:
        return dollars(row.micros_per_gib_month * 1000)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        price = "micros_per_gib_month" if obj is None else "price"
        return [(None, {"fields": [price]}), ("Period", {"fields": _PERIOD})]
