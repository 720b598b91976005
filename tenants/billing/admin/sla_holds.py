"""What operators decide of a draft's SLA credit, as actions on its page."""

from collections.abc import Callable
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from unfold.decorators import action
from unfold.widgets import UnfoldAdminTextInputWidget

from tenants.billing.invoicing import sla_holds
from tenants.billing.models import Invoice, LineKind, SlaDecision, SlaReview
from tenants.errors import Conflict
from tenants.management.arguments import one_sentence
from tenants.operator_admin import ReadOnlyAdmin
from tenants.verbs import verb


class ReasonForm(forms.Form):
    reason = forms.CharField(max_length=500, widget=UnfoldAdminTextInputWidget())


class SlaHoldAdmin(ReadOnlyAdmin):
    """Of invoices: hold, release and refuse."""

    sla_actions: ClassVar = ["hold_one", "release_one", "refuse_one"]

    def sla_actions_of(self, invoice: Invoice) -> tuple[str, ...]:
        """Return the actions that fit a draft."""
        if not invoice.lines.filter(kind=LineKind.SLA_CREDIT).exists():
            return ()
        review = SlaReview.objects.filter(invoice=invoice).first()
        is_held = review is not None and review.decision == SlaDecision.HELD
        return ("release_one", "refuse_one") if is_held else ("hold_one", "refuse_one")

    @admin.display(description="SLA credit")
    def sla_review_text(self, invoice: Invoice) -> str:
        review = SlaReview.objects.filter(invoice=invoice).first()
        return "" if review is None else str(review)

    @action(description="Hold SLA credit", url_path="hold", permissions=["settle"], icon="pause")
    def hold_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        text = "The draft is not issued until its SLA credit is released or refused."
        return self._decide(request, object_id, sla_holds.hold_credit, "Hold", text, "held")

    @action(
        description="Release SLA credit", url_path="release", permissions=["settle"], icon="check"
    )
    def release_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        text = "The draft can be issued, with its SLA credit."
        return self._decide(
            request, object_id, sla_holds.release_credit, "Release", text, "released"
        )

    @action(
        description="Refuse SLA credit", url_path="refuse", permissions=["settle"], icon="close"
    )
    def refuse_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        text = verb("invoices refuse").ends
        return self._decide(request, object_id, sla_holds.refuse_credit, "Refuse", text, "refused")

    def _decide(
        self,
        request: HttpRequest,
        object_id: str,
        decide: Callable[..., object],
        word: str,
        text: str,
        done: str,
    ) -> HttpResponse:
        invoice: Any = get_object_or_404(Invoice, pk=object_id)
        form = ReasonForm(request.POST if self.is_sure(request) else None)
        if form.is_valid():
            reason = form.cleaned_data["reason"]
            return self._do(
                request, invoice, lambda: decide(invoice.id, reason=reason), f"SLA credit {done}."
            )
        title = f"{word} the SLA credit of {invoice.tenant.name}'s draft for {invoice.month}"
        return self.ask_first(request, title=title, text=text, button=word, form=form)

    def _do(
        self, request: HttpRequest, invoice: Invoice, work: Callable[[], object], done: str
    ) -> HttpResponse:
        try:
            work()
        except Conflict as error:
            messages.error(request, error.message)
        except ValidationError as error:
            messages.error(request, one_sentence(error))
        else:
            self.log_change(request, invoice, done)
            messages.success(request, done)
        return self.back_to(invoice)
