"""Past usage rated anew by the price book of now: the days, the differences, their posting."""

import uuid
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from unfold.sites import UnfoldAdminSite
from unfold.widgets import UnfoldAdminSingleDateWidget

from inference.usage.rating.price_book import PriceBook
from inference.usage.rating.rerating import Adjustment, adjustments, rerate
from tenants.models import Tenant
from tenants.money import dollars
from tenants.operator_admin import MAY_BOOK, OperatorAdmin

# Each record of these days is rated while somebody waits; the command has no such bound.
MOST_DAYS: Final = 31
_MOST_MODELS: Final = 10


class DaysForm(forms.Form):
    first = forms.DateField(label="First day (UTC)", widget=UnfoldAdminSingleDateWidget())
    last = forms.DateField(label="Last day (UTC)", widget=UnfoldAdminSingleDateWidget())

    def clean_last(self) -> date:
        last: date = self.cleaned_data["last"]
        first: date | None = self.cleaned_data.get("first")
        if last >= datetime.now(UTC).date():
            raise ValidationError("Choose a day that is over.", code="not_past")
        if first is not None and last < first:
            raise ValidationError("Choose the first day or a later one.", code="before_first")
        if first is not None and last - first >= timedelta(days=MOST_DAYS):
            raise ValidationError(
                f"Choose at most {MOST_DAYS} days; `penstock usage rerate` takes any number.",
                code="too_many_days",
            )
        return last


def rerate_page(site: UnfoldAdminSite, request: HttpRequest, tenant_id: uuid.UUID) -> HttpResponse:
    """Ask for the days, show the differences, post them to the ledger."""
    if not request.user.has_perm(MAY_BOOK):
        raise PermissionDenied
    tenant = get_object_or_404(Tenant, pk=tenant_id)
    tenants: OperatorAdmin = site.get_model_admin(Tenant)
    form = DaysForm(request.POST if tenants.is_sure(request) else None)
    question: dict[str, Any] = {"title": f"Re-rate the usage of {tenant.name}"}
    if not form.is_valid():
        return tenants.ask_first(
            request,
            **question,
            text="What usage of these days should have cost by the price book and its corrections "
            "as they stand now. The difference is posted once; nothing that was posted changes.",
            button="Continue",
            form=form,
        )
    days = form.cleaned_data["first"], form.cleaned_data["last"]
    if tenants.has_understood(request):
        posted = rerate(tenant.pk, *days, PriceBook())
        messages.success(request, f"Posted: {_differences(posted)}")
    else:
        due = adjustments(tenant.pk, *days, PriceBook())
        if due:
            return tenants.show_understood(
                request, form, **question, text=_differences(due), button="Post"
            )
        messages.info(request, "Nothing to post: usage of these days cost what it should have.")
    return tenants.back_to(tenant)


def _differences(due: Sequence[Adjustment]) -> str:
    """Say what is charged more or less: by model, those with most of it, and in all."""
    by_model: defaultdict[str, int] = defaultdict(int)
    for each in due:
        by_model[each.model] += each.nanos
    largest = sorted(by_model.items(), key=lambda each: -abs(each[1]))
    named = [f"{model} {_charged(nanos)}" for model, nanos in largest[:_MOST_MODELS]]
    more = [f"{len(largest) - _MOST_MODELS} more"] if len(largest) > _MOST_MODELS else []
    days = len({each.day for each in due})
    return (
        f"{', '.join([*named, *more]) or 'nothing'}; {_charged(sum(by_model.values()))} in all, "
        f"of {days} day{'s' * (days != 1)} that differ{'s' * (days == 1)}."
    )


def _charged(nanos: int) -> str:
    return f"{dollars(abs(nanos))} {'more' if nanos > 0 else 'less'}"
