"""Invoices: what the tenant owes for each month, as JSON, PDF and CSV, down to the usage records
that a line is the sum of. Drafts are the operator's and not shown."""

import csv
import io
import uuid
from collections.abc import Iterable
from datetime import date
from typing import Any, ClassVar, Final

from django.db.models import QuerySet
from rest_framework.renderers import BaseRenderer
from rest_framework.response import Response

from inference.errors import NotFound
from inference.management_api.errors import NOTHING_HERE
from inference.management_api.lists import ListQuery, listed
from inference.management_api.view import TenantView
from inference.models import UsageRecord
from inference.usage.invoice_source import records_behind
from tenants.billing.invoicing.contents import lines_of
from tenants.billing.invoicing.csv_file import csv_text
from tenants.billing.invoicing.pdf import pdf_bytes
from tenants.billing.models import Invoice, InvoiceLine, LineKind
from tenants.money import decimal_dollars
from tenants.pagination import Order, page
from tenants.permissions import Permission
from tenants.spreadsheet import spreadsheet_cell

_ORDER: Final = Order(
    name="invoices",
    fields={"period": date.fromisoformat, "id": uuid.UUID},
    is_descending=True,
)
_RECORDS: Final = Order(name="invoiced usage", fields={"request_id": uuid.UUID})
_SHOWN: Final = (
    "request_id",
    "api_key_id",
    "api",
    "outcome",
    "prompt_tokens",
    "cached_tokens",
    "completion_tokens",
    "cost_nanos",
    "arrived_at",
    "recorded_at",
)


class PdfRenderer(BaseRenderer):
    """Passes bytes on as they are."""

    media_type = "application/pdf"
    format = "pdf"
    charset: str | None = None
    render_style = "binary"

    def render(self, data: Any, *_: Any, **__: Any) -> bytes:
        return bytes(data)


class CsvRenderer(PdfRenderer):
    media_type = "text/csv"
    format = "csv"
    charset = "utf-8"


class InvoicesView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW_INVOICES}
    parameters: ClassVar = {"GET": ListQuery}

    def get(self) -> Response:
        rows = Invoice.objects.for_tenants()
        found = page(rows, _ORDER, limit=self.query.limit, cursor=self.query.cursor)
        return listed(found, _rendered)


class OneInvoiceView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW_INVOICES}

    def get(self, invoice_id: uuid.UUID) -> Response:
        invoice = _issued(invoice_id)
        lines = [_rendered_line(line) for line in lines_of(invoice)]
        return Response(_rendered(invoice) | {"seller": invoice.seller_details, "lines": lines})


class _FileView(TenantView):
    """A file to keep, named after the invoice's number."""

    permissions: ClassVar = {"GET": Permission.VIEW_INVOICES}
    suffix: ClassVar[str]

    def answer_with(self, content: bytes, name: str) -> Response:
        headers = {"Content-Disposition": f'attachment; filename="{name}.{self.suffix}"'}
        return Response(content, headers=headers)


class InvoicePdfView(_FileView):
    renderer_classes = [PdfRenderer]
    suffix = "pdf"

    def get(self, invoice_id: uuid.UUID) -> Response:
        invoice = _issued(invoice_id)
        return self.answer_with(pdf_bytes(invoice), str(invoice))


class InvoiceCsvView(_FileView):
    renderer_classes = [CsvRenderer]
    suffix = "csv"

    def get(self, invoice_id: uuid.UUID) -> Response:
        invoice = _issued(invoice_id)
        return self.answer_with(csv_text(invoice).encode(), str(invoice))


class LineUsageView(TenantView):
    """The records behind one line; the sum of their `cost_nanos` is the line's amount."""

    permissions: ClassVar = {"GET": Permission.VIEW_INVOICES}
    parameters: ClassVar = {"GET": ListQuery}

    def get(self, invoice_id: uuid.UUID, line_id: uuid.UUID) -> Response:
        line, records = _behind(invoice_id, line_id)
        found = page(records, _RECORDS, limit=self.query.limit, cursor=self.query.cursor)
        return listed(found, _rendered_record, line=_rendered_line(line))


class LineUsageCsvView(_FileView):
    """All of them in one file."""

    renderer_classes = [CsvRenderer]
    suffix = "csv"

    def get(self, invoice_id: uuid.UUID, line_id: uuid.UUID) -> Response:
        line, records = _behind(invoice_id, line_id)
        rows = records.order_by("request_id").values_list(*_SHOWN).iterator(chunk_size=5000)
        return self.answer_with(_table(rows), f"{line.invoice}-line-{line.position}")


def _issued(invoice_id: uuid.UUID) -> Invoice:
    return Invoice.objects.for_tenants().get(id=invoice_id)


def _behind(invoice_id: uuid.UUID, line_id: uuid.UUID) -> tuple[InvoiceLine, QuerySet[UsageRecord]]:
    invoice = _issued(invoice_id)
    line = InvoiceLine.objects.get(id=line_id, invoice=invoice)
    line.invoice = invoice
    wanted = line.usage_filter
    if wanted is None:
        raise NotFound(NOTHING_HERE)
    return line, records_behind(wanted)


def _table(rows: Iterable[tuple[Any, ...]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(_SHOWN)
    for row in rows:
        writer.writerow([spreadsheet_cell(value) for value in row])
    return out.getvalue().encode()


def _rendered(invoice: Invoice) -> dict[str, Any]:
    """Render an invoice. Amounts are nano-dollars; `amount_due` is dollars to the cent."""
    return {
        "object": "invoice",
        "id": invoice.id,
        "number": invoice.number,
        "period": invoice.month,
        "state": invoice.state,
        "currency": "usd",
        "charges_nanos": invoice.charges_nanos,
        "credits_nanos": invoice.credits_nanos,
        "due_nanos": invoice.due_nanos,
        "brought_forward_nanos": invoice.brought_forward_nanos,
        "carried_nanos": invoice.carried_nanos,
        "payable_nanos": invoice.payable_nanos,
        "amount_due": decimal_dollars(invoice.payable_nanos),
        "issued_at": invoice.issued_at,
        "due_on": invoice.due_on,
        "paid_at": invoice.paid_at,
        "voided_at": invoice.voided_at,
        "void_reason": invoice.void_reason,
        "payment_url": invoice.payment_url or None,
    }


def _rendered_line(line: InvoiceLine) -> dict[str, Any]:
    rendered: dict[str, Any] = {
        "object": "invoice.line",
        "id": line.id,
        "kind": line.kind,
        "period": f"{line.period:%Y-%m}",
        "description": line.description,
        "amount_nanos": line.amount_nanos,
    }
    if line.is_usage:
        rendered |= {
            "project_id": line.project_id,
            "project_name": line.project_name,
            "model": line.model,
            "tier": line.tier,
            "adapter": line.adapter,
            "requests": line.requests,
            "prompt_tokens": line.prompt_tokens,
            "cached_tokens": line.cached_tokens,
            "completion_tokens": line.completion_tokens,
        }
    if line.kind == LineKind.SLA_CREDIT:
        rendered |= {
            "tier": line.tier,
            "promise": line.promise,
            "promised_percent": line.promised_percent,
            "measured_percent": line.measured_percent,
            "credit_percent": line.credit_percent,
            "granted_nanos": line.granted_nanos,
        }
    return rendered


def _rendered_record(record: UsageRecord) -> dict[str, Any]:
    return {"object": "usage.record", **{name: getattr(record, name) for name in _SHOWN}}
