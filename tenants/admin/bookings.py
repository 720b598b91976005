"""A tenant's money as operators book it on its page: a form, then what was understood of it, then
the verb of the ledger. Each is booked once for a reference, so that a second click changes nothing.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import path
from django.utils import timezone
from django.utils.text import capfirst
from unfold.widgets import (
    UnfoldAdminSelectWidget,
    UnfoldAdminSingleDateWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from tenants.amount_fields import DollarsField
from tenants.billing.ledger import credit
from tenants.billing.ledger.balances import balance_of
from tenants.billing.models import LedgerTransaction
from tenants.errors import TenantsError
from tenants.models import BillingMode, Tenant
from tenants.money import dollars
from tenants.operator_admin import MAY_BOOK, OperatorAdmin
from tenants.verbs import verb as verb_named

_TEXT: Final = {"autocomplete": "off"}
_TAKES: Final = verb_named("credit top-up").takes


class BookingForm(forms.Form):
    amount = DollarsField(
        help_text=f"{capfirst(_TAKES['amount'])}.",
        widget=UnfoldAdminTextInputWidget(attrs=_TEXT),
    )
    reference = forms.CharField(
        max_length=200,
        help_text=f"{capfirst(_TAKES['reference'])}.",
        widget=UnfoldAdminTextInputWidget(attrs=_TEXT),
    )
    memo = forms.CharField(
        max_length=500,
        required=False,
        help_text=f"{capfirst(_TAKES['memo'])}.",
        widget=UnfoldAdminTextInputWidget(attrs=_TEXT),
    )


class ReasonedForm(BookingForm):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["memo"].required = True


class GrantForm(BookingForm):
    last_day = forms.DateField(
        label="Last day (UTC)",
        required=False,
        help_text="What is left after it is taken back. Leave it blank for credit that never "
        "expires.",
        widget=UnfoldAdminSingleDateWidget(),
    )

    def clean_last_day(self) -> date | None:
        day: date | None = self.cleaned_data["last_day"]
        if day is not None and day < timezone.now().date():
            raise ValidationError("Choose today or a later day.", code="in_past")
        if day == date.max:  # its end is a day that nothing can name
            raise ValidationError("Choose an earlier day, or none.", code="too_late")
        return day


class AdjustmentForm(ReasonedForm):
    direction = forms.ChoiceField(
        choices=[("less", "charge less"), ("more", "charge more")],
        widget=UnfoldAdminSelectWidget(),
    )
    field_order = ("direction",)


class PaymentForm(BookingForm):
    is_on_account = forms.BooleanField(
        label="On account",
        required=False,
        help_text="The money belongs to no open invoice.",
        widget=UnfoldBooleanSwitchWidget(),
    )


class BillingModeForm(forms.Form):
    mode = forms.ChoiceField(
        choices=[(mode.value, capfirst(mode.label)) for mode in BillingMode],
        widget=UnfoldAdminSelectWidget(),
    )


Asked = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Booking:
    """A verb of the ledger: `understood` says what one entry will do."""

    label: str
    book: Callable[[uuid.UUID, Asked], LedgerTransaction]
    understood: Callable[[str, Asked], str]
    form: type[BookingForm] = BookingForm


def _texts(asked: Asked) -> dict[str, str]:
    return {"reference": asked["reference"], "memo": asked["memo"]}


def _of_amount(
    verb: Callable[..., LedgerTransaction],
) -> Callable[[uuid.UUID, Asked], LedgerTransaction]:
    """Return what books by a verb that takes an amount and nothing else of its own."""
    return lambda tenant_id, asked: verb(tenant_id, asked["amount"], **_texts(asked))


def _end_of(day: date | None) -> datetime | None:
    return None if day is None else datetime.combine(day + timedelta(days=1), time(), tzinfo=UTC)


def _until(day: date | None) -> str:
    return f"until the end of {day:%-d %B %Y} (UTC)" if day else "that never expires"


# By the name of the verb.
BOOKINGS: Final[Mapping[str, Booking]] = {
    "top-up": Booking(
        label="Top up",
        book=_of_amount(credit.top_up),
        understood=lambda name, asked: (
            f"{dollars(asked['amount'])} becomes prepaid credit of {name}."
        ),
    ),
    "grant": Booking(
        label="Grant credit",
        form=GrantForm,
        book=lambda tenant_id, asked: credit.grant_promotion(
            tenant_id, asked["amount"], expires_at=_end_of(asked["last_day"]), **_texts(asked)
        ),
        understood=lambda name, asked: (
            f"{name} is given {dollars(asked['amount'])} of promotional "
            f"credit {_until(asked['last_day'])}."
        ),
    ),
    "refund": Booking(
        label="Refund",
        book=_of_amount(credit.refund),
        understood=lambda name, asked: (
            f"{dollars(asked['amount'])} of {name}'s prepaid credit has been paid back."
        ),
    ),
    "adjust": Booking(
        label="Adjust",
        form=AdjustmentForm,
        book=lambda tenant_id, asked: credit.adjust(
            tenant_id,
            asked["amount"] if asked["direction"] == "more" else -asked["amount"],
            **_texts(asked),
        ),
        understood=lambda name, asked: (
            f"{name} is charged {dollars(asked['amount'])} {asked['direction']}."
        ),
    ),
    "pay": Booking(
        label="Record payment",
        form=PaymentForm,
        book=lambda tenant_id, asked: credit.pay(
            tenant_id,
            asked["amount"],
            is_on_account=asked["is_on_account"],
            **_texts(asked),
        ),
        understood=lambda name, asked: (
            f"{name} has paid {dollars(asked['amount'])}: what it owes "
            "first, and the rest is prepaid credit."
        ),
    ),
    "write-off": Booking(
        label="Write off",
        form=ReasonedForm,
        book=_of_amount(credit.write_off),
        understood=lambda name, asked: (
            f"{dollars(asked['amount'])} of what {name} owes is given up."
        ),
    ),
}


class BooksMoney(OperatorAdmin):
    """The pages below a tenant's own."""

    def get_urls(self) -> list[Any]:
        prefix = "tenants_tenant"
        mine = [
            path(
                "<uuid:tenant_id>/money/mode/",
                self.admin_site.admin_view(self.billing_mode),
                name=f"{prefix}_billing_mode",
            ),
            path(
                "<uuid:tenant_id>/money/<slug:verb>/",
                self.admin_site.admin_view(self.money),
                name=f"{prefix}_money",
            ),
        ]
        return [*mine, *super().get_urls()]

    def money(self, request: HttpRequest, tenant_id: uuid.UUID, verb: str) -> HttpResponse:
        """Ask what to book, show what was understood, book it."""
        if not request.user.has_perm(MAY_BOOK):
            raise PermissionDenied
        if verb not in BOOKINGS:
            raise Http404(f"No booking is called {verb!r}; there are {', '.join(BOOKINGS)}.")
        booking, tenant = BOOKINGS[verb], get_object_or_404(Tenant, pk=tenant_id)
        form = booking.form(request.POST if self.is_sure(request) else None)
        title = f"{booking.label}: {tenant.name}"
        if form.is_valid() and not self.has_understood(request):
            reference = form.cleaned_data["reference"]
            return self.show_understood(
                request,
                form,
                title=title,
                text=f"{booking.understood(tenant.name, form.cleaned_data)} Reference: "
                f"{reference}. {_has_now(tenant)}",
                button="Book",
            )
        if form.is_valid():
            try:
                booked = booking.book(tenant.id, form.cleaned_data)
            except TenantsError as refusal:
                form.add_error(None, refusal.message)
            except ValidationError as refusal:
                form.add_error(None, refusal)
            else:
                messages.success(
                    request,
                    f"{booking.label}: {dollars(booked.size_nanos)} is booked. {_has_now(tenant)}",
                )
                return self.back_to(tenant)
        return self.ask_first(
            request,
            title=title,
            text=f"{verb_named(f'credit {verb}').told} {_has_now(tenant)}",
            button="Continue",
            form=form,
        )

    def billing_mode(self, request: HttpRequest, tenant_id: uuid.UUID) -> HttpResponse:
        """Ask whether it pays beforehand or afterwards, and set it."""
        if not self.has_change_permission(request):
            raise PermissionDenied
        tenant = get_object_or_404(Tenant, pk=tenant_id)
        given = request.POST if self.is_sure(request) else None
        form = BillingModeForm(given, initial={"mode": tenant.billing_mode})
        if form.is_valid():
            try:
                tenant.set_billing_mode(BillingMode(form.cleaned_data["mode"]))
            except ValidationError as refusal:
                form.add_error(None, refusal)
            else:
                messages.success(request, f"{tenant.name} is {tenant.billing_mode} from now on.")
                return self.back_to(tenant)
        return self.ask_first(
            request,
            title=f"Billing mode of {tenant.name}",
            text=f"{verb_named('credit mode').ends} {_has_now(tenant)}",
            button="Set",
            form=form,
        )


def _has_now(tenant: Tenant) -> str:
    held = balance_of(tenant.id)
    return f"Now: credit {dollars(held.credit_nanos)}, owed {dollars(held.owed_nanos)}."
