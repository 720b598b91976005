"""Invoices: issue, mark as paid, void, discard and download."""

from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import Count, Q, QuerySet, Sum
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.contrib.filters.admin import (
    AutocompleteSelectFilter,
    ChoicesDropdownFilter,
    DropdownFilter,
)
from unfold.decorators import action, display
from unfold.widgets import UnfoldAdminTextInputWidget

from tenants.billing.admin.sla_holds import ReasonForm, SlaHoldAdmin
from tenants.billing.invoicing import invoices
from tenants.billing.invoicing.contents import lines_of, sums
from tenants.billing.invoicing.csv_file import csv_text
from tenants.billing.invoicing.month_end import issue_drafts
from tenants.billing.invoicing.pdf import pdf_bytes
from tenants.billing.models import Invoice, InvoiceLine, InvoiceState, LineKind, SlaReview
from tenants.errors import Conflict
from tenants.money import dollars, dollars_and_cents
from tenants.verbs import verb


class ReferenceForm(forms.Form):
    reference = forms.CharField(
        max_length=200,
        label="Payment reference",
        help_text="As on the bank statement.",
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
    )


_DETAILS = (
    "seller",
    "drafted_at",
    "usage_until",
    "issued_at",
    "due_on",
    "payment_url",
    "provider_reference",
    "paid_at",
    "payment_text",
    "voided_at",
    "void_reason",
)


class MonthFilter(DropdownFilter):  # type: ignore[misc]
    title = "month"
    parameter_name = "month"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        months = Invoice.objects.order_by("-period").values_list("period", flat=True).distinct()
        return [(f"{month:%Y-%m-%d}", f"{month:%B %Y}") for month in months[:120]]

    def queryset(self, request: HttpRequest, rows: QuerySet[Invoice]) -> QuerySet[Invoice]:
        return rows.filter(period=self.value()) if self.value() else rows


@admin.register(Invoice)
class InvoiceAdmin(SlaHoldAdmin):
    list_display = ["name", "tenant", "month_name", "condition", "charges", "amount_due", "due_on"]
    list_display_links = ["name"]
    list_filter = [
        ("tenant", AutocompleteSelectFilter),
        ("state", ChoicesDropdownFilter),
        MonthFilter,
    ]
    search_fields = ["number__istartswith", "tenant__name", "payments__reference__exact"]
    list_select_related = ["tenant"]
    list_before_template = "admin/billing/invoice_totals.html"
    ordering = ["-period", "tenant__name"]
    actions = ["issue_selected"]
    actions_detail: ClassVar = ["pdf_one", "csv_one", "issue_one", "pay_one", "void_one",
                                "discard_one", *SlaHoldAdmin.sla_actions]  # fmt: skip

    def has_settle_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("billing.change_invoice")

    def has_read_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return bool(self.has_view_permission(request))

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        """Return the actions that the invoice's state allows."""
        invoice = Invoice.objects.filter(pk=object_id).first()
        if invoice is None:
            return []
        fitting: tuple[str, ...] = {
            InvoiceState.DRAFT: ("pdf_one", "csv_one", "issue_one", "discard_one"),
            InvoiceState.ISSUED: ("pdf_one", "csv_one", "pay_one", "void_one"),
        }.get(InvoiceState(invoice.state), ("pdf_one", "csv_one"))
        if invoice.is_draft:
            fitting += self.sla_actions_of(invoice)
        actions = super().get_actions_detail(request, object_id)
        return [each for each in actions if each.action_name.endswith(fitting)]

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        answer: HttpResponse = super().changelist_view(request, extra_context)
        context = getattr(answer, "context_data", None)
        if context is not None and "cl" in context:
            context["invoice_totals"] = _totals(context["cl"].queryset)
        return answer

    def get_fieldsets(self, request: HttpRequest, invoice: Any = None) -> Any:
        """Show beside a draft's state what blocks it, and omit fields of what has not happened."""
        facts = ["name", "tenant_link", "month_name", "condition", "blocked_reason",
                 "sla_review_text", "amount_due"]  # fmt: skip
        return [
            (None, {"fields": [name for name in facts if _has(invoice, name)]}),
            ("Lines", {"fields": ["lines_table"]}),
            ("Details", {"fields": [name for name in _DETAILS if _has(invoice, name)]}),
        ]

    # Columns ------------------------------------------------------------------------------------

    @admin.display(description="invoice", ordering="number")
    def name(self, invoice: Invoice) -> str:
        return invoice.number or "draft"

    @admin.display(description="month", ordering="period")
    def month_name(self, invoice: Invoice) -> str:
        return f"{invoice.period:%B %Y}"

    @display(
        description="state",
        ordering="state",
        label={
            "draft": "info",
            "blocked": "danger",
            "issued": "warning",
            "overdue": "danger",
            "paid": "success",
            "void": "default",
        },
    )
    def condition(self, invoice: Invoice) -> str:
        if invoice.is_draft and invoice.blocked_reason:
            return "blocked"
        return "overdue" if invoice.is_overdue else str(invoice.state)

    @admin.display(description="charges", ordering="charges_nanos")
    def charges(self, invoice: Invoice) -> str:
        return dollars(invoice.charges_nanos)

    @admin.display(description="amount due", ordering="payable_nanos")
    def amount_due(self, invoice: Invoice) -> str:
        return dollars_and_cents(invoice.payable_nanos)

    @admin.display(description="tenant")
    def tenant_link(self, invoice: Invoice) -> SafeString:
        return format_html(
            '<a class="text-primary-600 dark:text-primary-500" href="{}">{}</a>',
            reverse("admin:tenants_tenant_change", args=[invoice.tenant_id]),
            invoice.tenant.name,
        )

    @admin.display(description="payment")
    def payment_text(self, invoice: Invoice) -> str:
        return "; ".join(
            f"{dollars_and_cents(each.amount_nanos)} by {each.provider}: {each.reference}"
            for each in invoice.payments.order_by("recorded_at")
        )

    @admin.display(description="lines and totals")
    def lines_table(self, invoice: Invoice) -> SafeString:
        rows = format_html_join("", _ROW, (_cells(line) for line in lines_of(invoice)))
        totals = format_html_join("", _TOTAL, ((each.label, each.text) for each in sums(invoice)))
        return format_html(
            '<div class="overflow-x-auto"><table class="w-full text-left">{}{}{}</table></div>',
            _HEAD,
            rows,
            totals,
        )

    # Actions ------------------------------------------------------------------------------------

    @admin.action(permissions=["settle"], description="Issue the selected drafts")
    def issue_selected(
        self, request: HttpRequest, chosen: QuerySet[Invoice]
    ) -> HttpResponse | None:
        drafts = chosen.filter(state=InvoiceState.DRAFT).order_by("period", "buyer_name", "id")
        if not self.is_sure(request):
            return self.ask_first_of_list(
                request,
                title="Issue invoices",
                text=f"{_drafts(drafts.count())}: each gets its number, and its tenant is "
                "told. An issued invoice never changes; it can only be voided.",
                button="Issue",
            )
        ids = list(drafts.values_list("id", flat=True))
        issued = issue_drafts(ids)
        if issued < len(ids):
            messages.warning(
                request,
                f"{_drafts(len(ids) - issued)} could not be issued; each page shows the reason.",
            )
        messages.success(request, f"{issued} invoice{'s' * (issued != 1)} issued.")
        return None

    @action(description="PDF", url_path="pdf", permissions=["read"], icon="picture_as_pdf")
    def pdf_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        invoice = get_object_or_404(Invoice, pk=object_id)
        return _download(invoice, "pdf", "application/pdf", pdf_bytes(invoice))

    @action(description="CSV", url_path="csv", permissions=["read"], icon="table")
    def csv_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        invoice = get_object_or_404(Invoice, pk=object_id)
        return _download(invoice, "csv", "text/csv; charset=utf-8", csv_text(invoice).encode())

    @action(description="Issue", url_path="issue", permissions=["settle"], icon="send")
    def issue_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        invoice = get_object_or_404(Invoice, pk=object_id)
        if self.is_sure(request):
            return self._do(request, invoice, lambda: invoices.issue(invoice.id), "Invoice issued.")
        return self.ask_first(
            request,
            title=f"Issue {invoice.tenant.name}'s invoice for {invoice.month}",
            text=f"{dollars_and_cents(invoice.payable_nanos)}. {verb('invoices issue').ends}",
            button="Issue",
        )

    @action(description="Mark as paid", url_path="pay", permissions=["settle"], icon="payments")
    def pay_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        invoice = get_object_or_404(Invoice, pk=object_id)
        form = ReferenceForm(request.POST if self.is_sure(request) else None)
        if form.is_valid():
            reference = form.cleaned_data["reference"]
            return self._do(
                request,
                invoice,
                lambda: invoices.pay(invoice.id, reference=reference),
                "Invoice marked as paid.",
            )
        return self.ask_first(
            request,
            title=f"Mark {invoice} as paid",
            text=f"Records that {invoice.tenant.name} has paid "
            f"{dollars_and_cents(invoice.unpaid_nanos)}, all that is left of it.",
            button="Mark as paid",
            form=form,
        )

    @action(description="Void", url_path="void", permissions=["settle"], icon="block")
    def void_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        invoice = get_object_or_404(Invoice, pk=object_id)
        form = ReasonForm(request.POST if self.is_sure(request) else None)
        if form.is_valid():
            reason = form.cleaned_data["reason"]
            return self._do(
                request,
                invoice,
                lambda: invoices.void(invoice.id, reason=reason),
                "Invoice voided.",
            )
        return self.ask_first(
            request,
            title=f"Void {invoice}",
            text=verb("invoices void").ends,
            button="Void",
            form=form,
            is_final=True,
        )

    @action(description="Discard", url_path="discard", permissions=["settle"], icon="delete")
    def discard_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        invoice = get_object_or_404(Invoice, pk=object_id)
        if self.is_sure(request):
            try:
                invoices.discard(invoice.id)
            except Conflict as error:
                messages.error(request, error.message)
                return self.back_to(invoice)
            messages.success(request, "Draft discarded. Its month can be drafted again.")
            return redirect("admin:billing_invoice_changelist")
        return self.ask_first(
            request,
            title=f"Discard {invoice.tenant.name}'s draft for {invoice.month}",
            text=verb("invoices discard").ends,
            button="Discard",
            is_final=True,
        )


def _totals(shown: QuerySet[Invoice]) -> list[dict[str, Any]]:
    """Return count and amount of the listed invoices, by state."""
    found = shown.order_by().aggregate(
        **{f"{state}_count": Count("id", filter=Q(state=state)) for state in InvoiceState.values},
        **{
            f"{state}_nanos": Sum("payable_nanos", filter=Q(state=state), default=0)
            for state in InvoiceState.values
        },
    )
    words = {"draft": "Drafts", "issued": "Outstanding", "paid": "Paid", "void": "Void"}
    return [
        {
            "label": words[state],
            "count": found[f"{state}_count"],
            "amount": dollars_and_cents(found[f"{state}_nanos"]),
        }
        for state in InvoiceState.values
    ]


_HEAD = SafeString(
    '<tr class="border-b border-base-200 dark:border-base-800">'
    '<th class="pr-4 py-2">Line</th><th class="pr-4">Project</th>'
    '<th class="pr-4 text-right">Requests</th><th class="pr-4 text-right">Prompt tokens</th>'
    '<th class="pr-4 text-right">Cached tokens</th>'
    '<th class="pr-4 text-right">Completion tokens</th>'
    '<th class="text-right">Amount</th></tr>'
)
_ROW = (
    '<tr class="border-b border-base-200 dark:border-base-800">'
    '<td class="pr-4 py-2">{}</td><td class="pr-4">{}</td><td class="pr-4 text-right">{}</td>'
    '<td class="pr-4 text-right">{}</td><td class="pr-4 text-right">{}</td>'
    '<td class="pr-4 text-right">{}</td><td class="text-right whitespace-nowrap">{}</td></tr>'
)
_TOTAL = (
    '<tr><td class="pr-4 py-2 font-semibold" colspan="6">{}</td>'
    '<td class="text-right whitespace-nowrap font-semibold">{}</td></tr>'
)


def _drafts(count: int) -> str:
    return "1 draft" if count == 1 else f"{count} drafts"


def _cells(line: InvoiceLine) -> tuple[str, ...]:
    if not line.is_usage:
        return (line.description, "", "", "", "", "", dollars(line.amount_nanos))
    what = " · ".join(filter(None, [line.model, line.tier, line.adapter]))
    late = f", late usage of {line.period:%B %Y}" if line.kind == LineKind.LATE_USAGE else ""
    counts = (line.requests, line.prompt_tokens, line.cached_tokens, line.completion_tokens)
    return (
        f"{what}{late}",
        line.project_name,
        *(f"{count:,}" for count in counts),
        dollars(line.amount_nanos),
    )


def _has(invoice: Invoice, name: str) -> bool:
    """Return whether the invoice has a value to show; a column that is no field always has."""
    if name == "payment_text":
        return invoice.payments.exists()
    if name == "sla_review_text":
        return SlaReview.objects.filter(invoice=invoice).exists()
    return getattr(invoice, name, True) not in ("", None)


def _download(invoice: Invoice, suffix: str, content_type: str, content: bytes) -> HttpResponse:
    answer = HttpResponse(content, content_type=content_type)
    name = invoice.number or f"draft-{invoice.month}-{invoice.tenant_id}"
    answer["Content-Disposition"] = f'attachment; filename="{name}.{suffix}"'
    answer["Cache-Control"] = "no-store"
    return answer
