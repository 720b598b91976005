"""Invoices: what the tenant owes for each month, as JSON, PDF and CSV, down to the usage records
that a line is the sum of. Drafts are the operator's and not shown."""

import csv
import io
import uuid
from collections.abc import Iterable
from functools import cached_property
from typing import Any, ClassVar, Final

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_view
from rest_framework import mixins, serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.management_api.errors import NOTHING_HERE
from control_plane.management_api.serializers import PageSerializer
from control_plane.management_api.viewsets import TenantScopedViewSet
from control_plane.records import fields
from control_plane.records.filters import InvoiceFilter, LineUsageFilter
from inference.errors import NotFound
from inference.models import UsageRecord
from inference.usage.invoice_source import records_behind
from tenants.billing.invoicing.contents import lines_of
from tenants.billing.invoicing.csv_file import csv_text
from tenants.billing.invoicing.lists import INVOICES_ORDER
from tenants.billing.invoicing.pdf import pdf_bytes
from tenants.billing.models import Invoice, InvoiceLine, LineKind
from tenants.money import decimal_dollars
from tenants.pagination import Order
from tenants.permissions import Permission
from tenants.spreadsheet import spreadsheet_cell

_RECORDS: Final = Order(name="invoiced usage", fields={"request_id": uuid.UUID})
_OF_USAGE: Final = frozenset(
    {
        "project_id",
        "project_name",
        "model",
        "tier",
        "adapter",
        "requests",
        "prompt_tokens",
        "cached_tokens",
        "completion_tokens",
    }
)
_OF_SLA_CREDITS: Final = frozenset(
    {
        "tier",
        "promise",
        "promised_percent",
        "measured_percent",
        "credit_percent",
        "granted_nanos",
    }
)


class InvoiceSerializer(serializers.Serializer[Any]):
    """Amounts are nano-dollars; `amount_due` is dollars to the cent."""

    object = fields.ConstantField("invoice")
    id = fields.UUIDField(read_only=True)
    number = fields.CharField(read_only=True)
    period = fields.MonthField()
    state = fields.CharField(read_only=True)
    currency = fields.ConstantField("usd")
    charges_nanos = fields.IntegerField(read_only=True)
    credits_nanos = fields.IntegerField(read_only=True)
    due_nanos = fields.IntegerField(read_only=True)
    brought_forward_nanos = fields.IntegerField(read_only=True)
    carried_nanos = fields.IntegerField(read_only=True)
    payable_nanos = fields.IntegerField(read_only=True)
    amount_due = serializers.SerializerMethodField()
    issued_at = fields.DateTimeField(read_only=True, allow_null=True)
    due_on = serializers.DateField(read_only=True, allow_null=True)
    paid_at = fields.DateTimeField(read_only=True, allow_null=True)
    voided_at = fields.DateTimeField(read_only=True, allow_null=True)
    void_reason = fields.CharField(read_only=True)
    payment_url = fields.NullableCharField(read_only=True)

    def get_amount_due(self, invoice: Invoice) -> str:
        return decimal_dollars(invoice.payable_nanos)


class LineSerializer(serializers.Serializer[Any]):
    """A line has the fields of its kind."""

    sometimes = _OF_USAGE | _OF_SLA_CREDITS

    object = fields.ConstantField("invoice.line")
    id = fields.UUIDField(read_only=True)
    kind = serializers.ChoiceField(LineKind.values, read_only=True)
    period = fields.MonthField()
    description = fields.CharField(read_only=True)
    amount_nanos = fields.IntegerField(read_only=True)
    project_id = fields.UUIDField(read_only=True)
    project_name = fields.CharField(read_only=True)
    model = fields.CharField(read_only=True)
    tier = fields.CharField(read_only=True)
    adapter = fields.CharField(read_only=True)
    requests = fields.IntegerField(read_only=True)
    prompt_tokens = fields.IntegerField(read_only=True)
    cached_tokens = fields.IntegerField(read_only=True)
    completion_tokens = fields.IntegerField(read_only=True)
    promise = fields.CharField(read_only=True)
    promised_percent = serializers.FloatField(read_only=True)
    measured_percent = serializers.FloatField(read_only=True)
    credit_percent = fields.IntegerField(read_only=True)
    granted_nanos = fields.IntegerField(read_only=True)

    def to_representation(self, instance: InvoiceLine) -> dict[str, Any]:
        own: frozenset[str] = frozenset()
        if instance.is_usage:
            own = _OF_USAGE
        elif instance.kind == LineKind.SLA_CREDIT:
            own = _OF_SLA_CREDITS
        hidden = (_OF_USAGE | _OF_SLA_CREDITS) - own
        shown = super().to_representation(instance)
        return {name: value for name, value in shown.items() if name not in hidden}


class OneInvoiceSerializer(InvoiceSerializer):
    seller = serializers.DictField(source="seller_details", read_only=True)
    lines = serializers.SerializerMethodField()

    @extend_schema_field(LineSerializer(many=True))
    def get_lines(self, invoice: Invoice) -> list[dict[str, Any]]:
        return list(LineSerializer(lines_of(invoice), many=True).data)


class UsageRecordSerializer(serializers.Serializer[Any]):
    object = fields.ConstantField("usage.record")
    request_id = fields.UUIDField(read_only=True)
    api_key_id = fields.UUIDField(read_only=True)
    api = fields.CharField(read_only=True)
    outcome = fields.CharField(read_only=True)
    prompt_tokens = fields.IntegerField(read_only=True)
    cached_tokens = fields.IntegerField(read_only=True)
    completion_tokens = fields.IntegerField(read_only=True)
    cost_nanos = fields.IntegerField(read_only=True)
    arrived_at = fields.DateTimeField(read_only=True)
    recorded_at = fields.DateTimeField(read_only=True)


_COLUMNS: Final = tuple(name for name in UsageRecordSerializer().get_fields() if name != "object")


class InvoiceViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, TenantScopedViewSet):
    summaries: ClassVar = {
        "list": "List invoices",
        "retrieve": "Show an invoice with its lines",
        "pdf": "Download an invoice as PDF",
        "csv": "Download an invoice's lines as CSV",
    }
    permission_map: ClassVar = {
        "list": Permission.VIEW_INVOICES,
        "retrieve": Permission.VIEW_INVOICES,
        "pdf": Permission.VIEW_INVOICES,
        "csv": Permission.VIEW_INVOICES,
    }
    serializer_class = InvoiceSerializer
    serializer_classes: ClassVar = {"retrieve": OneInvoiceSerializer}
    order = INVOICES_ORDER
    filterset_class = InvoiceFilter
    lookup_url_kwarg = "invoice_id"

    def get_queryset(self) -> QuerySet[Invoice]:
        return Invoice.objects.for_tenants()

    @extend_schema(responses={(200, "application/pdf"): OpenApiTypes.BINARY})
    def pdf(self, _request: Request, **_ids: uuid.UUID) -> Response:
        invoice = self.get_object()
        return _to_keep(pdf_bytes(invoice), f"{invoice}.pdf")

    @extend_schema(responses={(200, "text/csv"): OpenApiTypes.STR})
    def csv(self, _request: Request, **_ids: uuid.UUID) -> Response:
        invoice = self.get_object()
        return _to_keep(csv_text(invoice).encode(), f"{invoice}.csv")


class LineUsagePageSerializer(PageSerializer):
    data = UsageRecordSerializer(many=True, read_only=True)  # type: ignore[assignment]  # DRF takes it out
    line = LineSerializer(read_only=True)


@extend_schema_view(list=extend_schema(responses=LineUsagePageSerializer))
class LineUsageViewSet(mixins.ListModelMixin, TenantScopedViewSet):
    """The records behind one line; the sum of their `cost_nanos` is the line's amount."""

    summaries: ClassVar = {
        "list": "List the usage records behind a line",
        "csv": "Download the usage records behind a line as CSV",
    }
    permission_map: ClassVar = {
        "list": Permission.VIEW_INVOICES,
        "csv": Permission.VIEW_INVOICES,
    }
    serializer_class = UsageRecordSerializer
    order = _RECORDS
    filterset_class = LineUsageFilter

    @cached_property
    def line(self) -> InvoiceLine:
        """Return the line, with its invoice."""
        invoice = get_object_or_404(Invoice.objects.for_tenants(), id=self.kwargs["invoice_id"])
        line = get_object_or_404(
            InvoiceLine.objects.filter(invoice=invoice), id=self.kwargs["line_id"]
        )
        line.invoice = invoice
        return line

    def get_queryset(self) -> QuerySet[UsageRecord]:
        wanted = self.line.usage_filter
        if wanted is None:
            raise NotFound(NOTHING_HERE)
        return records_behind(wanted)

    def get_paginated_response(self, data: Any) -> Response:
        response = super().get_paginated_response(data)
        response.data["line"] = LineSerializer(self.line).data
        return response

    @extend_schema(responses={(200, "text/csv"): OpenApiTypes.STR})
    def csv(self, _request: Request, **_ids: uuid.UUID) -> Response:
        """Answer all of them in one file."""
        records = self.get_queryset().order_by("request_id").values_list(*_COLUMNS)
        line = self.line
        content = _table(records.iterator(chunk_size=5000))
        return _to_keep(content, f"{line.invoice}-line-{line.position}.csv")


def _to_keep(content: bytes, name: str) -> Response:
    return Response(content, headers={"Content-Disposition": f'attachment; filename="{name}"'})


def _table(rows: Iterable[tuple[Any, ...]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(_COLUMNS)
    for row in rows:
        writer.writerow([spreadsheet_cell(value) for value in row])
    return out.getvalue().encode()
