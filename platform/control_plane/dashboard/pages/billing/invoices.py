"""Invoices: the list, one of them with how it is paid, and its files, which are the API's too."""

import uuid
from typing import ClassVar, Final

from django import forms
from django.http import HttpRequest, HttpResponse

from control_plane.dashboard.downloads import attachment
from control_plane.dashboard.forms import FilterForm
from control_plane.dashboard.lists import ROWS, page_of
from control_plane.dashboard.pages.billing.balance import BillingPage
from tenants.billing.invoicing.contents import lines_of, period_words, sums
from tenants.billing.invoicing.csv_file import csv_text
from tenants.billing.invoicing.lists import SHOWN_STATES, list_invoices, shown_invoice
from tenants.billing.invoicing.pdf import pdf_bytes
from tenants.billing.models import Invoice, InvoiceState, LineKind
from tenants.permissions import Permission

# The rest stands in the files: a page is to stay small.
MOST_LINES: Final = 200


class InvoiceFilters(FilterForm):
    state = forms.TypedChoiceField(
        choices=[("", "All"), *((state.value, state.label) for state in SHOWN_STATES)],
        coerce=InvoiceState,
    )


class InvoicesPage(BillingPage):
    permissions: ClassVar = {"GET": Permission.VIEW_INVOICES}
    template_name = "dashboard/billing/invoices.html"
    tab = "invoices"

    def get(self, request: HttpRequest) -> HttpResponse:
        filters = InvoiceFilters(request.GET)
        chosen = filters.chosen()
        page = page_of(request, lambda cursor: list_invoices(**chosen, limit=ROWS, cursor=cursor))
        context = {"filters": filters, "is_filtered": bool(chosen), "page": page}
        return self.show(context | self.tabs(), fragment="list")


class InvoicePage(BillingPage):
    permissions: ClassVar = {"GET": Permission.VIEW_INVOICES}
    template_name = "dashboard/billing/invoice.html"
    tab = "invoices"

    def get(self, request: HttpRequest, invoice_id: uuid.UUID) -> HttpResponse:
        invoice = shown_invoice(invoice_id)
        lines = lines_of(invoice)
        context = {
            "invoice": invoice,
            "period": period_words(invoice),
            "lines": lines[:MOST_LINES],
            "left_out": max(0, len(lines) - MOST_LINES),
            "sla_credits": [line for line in lines if line.kind == LineKind.SLA_CREDIT],
            "sums": sums(invoice),
            "payment_link": _payment_link(invoice),
        }
        return self.show(context)


class InvoicePdf(BillingPage):
    permissions: ClassVar = {"GET": Permission.VIEW_INVOICES}
    tab = "invoices"

    def get(self, request: HttpRequest, invoice_id: uuid.UUID) -> HttpResponse:
        invoice = shown_invoice(invoice_id)
        return attachment(pdf_bytes(invoice), f"{invoice}.pdf", "application/pdf")


class InvoiceCsv(BillingPage):
    permissions: ClassVar = {"GET": Permission.VIEW_INVOICES}
    tab = "invoices"

    def get(self, request: HttpRequest, invoice_id: uuid.UUID) -> HttpResponse:
        invoice = shown_invoice(invoice_id)
        return attachment(csv_text(invoice).encode(), f"{invoice}.csv", "text/csv; charset=utf-8")


def _payment_link(invoice: Invoice) -> str:
    """Return where the invoice can be paid online; "" where it cannot, or need not."""
    is_open = invoice.state == InvoiceState.ISSUED
    # Another page's address, as its provider said it: no script, nothing in clear text.
    return invoice.payment_url if is_open and invoice.payment_url.startswith("https://") else ""
