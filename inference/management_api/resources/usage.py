"""GET usage and GET costs: what was used and what it cost, by day, project, key, model, adapter or
tier; of one tenant, or for operators of all."""

import csv
import io
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any, ClassVar, Final

from django.db.models import QuerySet
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import mixins, serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response

from inference.errors import InvalidRequest
from inference.histograms import Histogram
from inference.management_api import fields
from inference.management_api.callers import KeyBearer, Person
from inference.management_api.permissions import MayInTenant
from inference.management_api.renderers import CsvRenderer
from inference.management_api.serializers import ListQuery, PageSerializer
from inference.management_api.viewsets import TenantScopedViewSet
from inference.usage.reports import (
    Dimension,
    UsageQuery,
    aggregate,
    quantiles,
    total_cost_nanos,
)
from tenants.access.people import tenants_of
from tenants.isolation.scoping import current_scope, operator_scope
from tenants.money import decimal_dollars
from tenants.pagination import Order, page
from tenants.permissions import Permission
from tenants.spreadsheet import spreadsheet_cell

_DEFAULT_DAYS: Final = 30
_MAX_DAYS: Final = 366
_MAX_CSV_ROWS: Final = 100_000
_FILTERS: Final = ("tenant_id", "project_id", "api_key_id", "model", "adapter", "tier")


class ReportQuery(ListQuery):
    """Days in UTC, both included; by default the last 30. `group_by` names what to group by, with
    commas between; a CSV file has all rows, without pages."""

    to = fields.DateField(default=None)
    group_by = serializers.CharField(max_length=100, allow_blank=True, default="day,project")
    project_id = fields.UUIDField(default=None)
    api_key_id = fields.UUIDField(default=None)
    model = serializers.CharField(max_length=200, allow_blank=True, default=None)
    adapter = serializers.CharField(max_length=200, allow_blank=True, default=None)
    tier = serializers.CharField(max_length=200, allow_blank=True, default=None)
    format = fields.ChoiceField(["json", "csv"], default=None)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        # A word of Python's cannot be declared.
        return {"from": fields.DateField(default=None), **super().get_fields()}


class AnyTenantsReportQuery(ReportQuery):
    """`tenant_id` left out: the caller's one tenant; for operators, all."""

    tenant_id = fields.UUIDField(default=None)


class ReportSerializer(serializers.Serializer[Any]):
    """What stands beside the rows."""

    to = serializers.DateField(source="last", read_only=True)
    group_by = serializers.ListField(child=serializers.CharField(), read_only=True)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        first = serializers.DateField(source="first", read_only=True)
        return {"from": first, **super().get_fields()}


class CostReportSerializer(ReportSerializer):
    total_cost_nanos = serializers.SerializerMethodField()
    total_cost_dollars = serializers.SerializerMethodField()

    def get_total_cost_nanos(self, _query: UsageQuery) -> int:
        nanos: int = self.context["view"].total_nanos
        return nanos

    def get_total_cost_dollars(self, _query: UsageQuery) -> str:
        return decimal_dollars(self.context["view"].total_nanos, digits=9)


class GroupsSerializer(serializers.Serializer[Any]):
    """What a row is the sum of: the groups that were asked for, and no other."""

    sometimes = frozenset(
        {"date", "tenant_id", "project_id", "api_key_id", "model", "adapter", "tier"}
    )

    date = serializers.DateField(source="day", read_only=True)
    tenant_id = fields.UUIDField(read_only=True)
    project_id = fields.UUIDField(read_only=True)
    api_key_id = fields.UUIDField(read_only=True)
    model = fields.CharField(read_only=True)
    adapter = fields.CharField(read_only=True)
    tier = fields.CharField(read_only=True)


class QuantilesSerializer(serializers.Serializer[Any]):
    """In ms; None where nothing was measured."""

    p50 = serializers.FloatField(read_only=True, allow_null=True)
    p95 = serializers.FloatField(read_only=True, allow_null=True)
    p99 = serializers.FloatField(read_only=True, allow_null=True)

    def to_representation(self, instance: Histogram) -> dict[str, Any]:
        return quantiles(instance)


class UsageTotalSerializer(GroupsSerializer):
    object = fields.ConstantField("usage.total")
    requests = fields.IntegerField(read_only=True)
    completed = fields.IntegerField(read_only=True)
    cancelled = fields.IntegerField(read_only=True)
    refused = fields.IntegerField(read_only=True)
    expired = fields.IntegerField(read_only=True)
    failed = fields.IntegerField(read_only=True)
    prompt_tokens = fields.IntegerField(read_only=True)
    cached_tokens = fields.IntegerField(read_only=True)
    completion_tokens = fields.IntegerField(read_only=True)
    reasoning_tokens = fields.IntegerField(read_only=True)
    wasted_tokens = fields.IntegerField(read_only=True)
    ttft_ms = QuantilesSerializer(source="ttft_histogram", read_only=True)
    inter_token_ms = QuantilesSerializer(source="itl_histogram", read_only=True)
    duration_ms = QuantilesSerializer(source="duration_histogram", read_only=True)


class CostTotalSerializer(GroupsSerializer):
    object = fields.ConstantField("cost.total")
    requests = fields.IntegerField(read_only=True)
    prompt_tokens = fields.IntegerField(read_only=True)
    cached_tokens = fields.IntegerField(read_only=True)
    completion_tokens = fields.IntegerField(read_only=True)
    cost_nanos = fields.IntegerField(read_only=True)
    cost_dollars = serializers.SerializerMethodField()

    def get_cost_dollars(self, row: Mapping[str, Any]) -> str:
        return decimal_dollars(int(row["cost_nanos"]), digits=9)


class _ReportViewSet(mixins.ListModelMixin, TenantScopedViewSet):
    permission_map: ClassVar = {"list": Permission.VIEW_USAGE}
    query_serializers: ClassVar = {"list": ReportQuery}
    renderer_classes = [JSONRenderer, CsvRenderer]
    report_serializer: ClassVar[type[ReportSerializer]] = ReportSerializer
    # What the report is of, whether it tells latencies.
    report: ClassVar[str]
    with_latencies: ClassVar[bool]

    @cached_property
    def asked(self) -> UsageQuery:
        return _usage_query(self.query, datetime.now(UTC).date())

    def get_queryset(self) -> QuerySet[Any, Any]:
        return aggregate(self.asked, with_latencies=self.with_latencies)

    def get_order(self) -> Order:
        columns = {
            each.column: date.fromisoformat
            if each is Dimension.DAY
            else uuid.UUID
            if each.column.endswith("_id")
            else str
            for each in self.asked.group_by
        }
        return Order(
            name=f"{self.report} by {' '.join(columns)}", fields=columns, is_descending=True
        )

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        wanted = self.query["format"] or request.accepted_renderer.format
        renderer = CsvRenderer() if wanted == "csv" else JSONRenderer()
        request.accepted_renderer, request.accepted_media_type = renderer, renderer.media_type
        return self._csv() if wanted == "csv" else super().list(request, *args, **kwargs)

    def get_paginated_response(self, data: Any) -> Response:
        response = super().get_paginated_response(data)
        context = self.get_serializer_context()
        response.data |= self.report_serializer(self.asked, context=context).data
        return response

    def _csv(self) -> Response:
        found = page(self.get_queryset(), self.get_order(), limit=_MAX_CSV_ROWS)
        if found.next_cursor is not None:
            raise InvalidRequest(
                f"This has more than {_MAX_CSV_ROWS} rows; ask for fewer days or groups.",
                param="group_by",
            )
        rows: Any = self.get_serializer(found.rows, many=True)
        groups = [_shown(each) for each in self.asked.group_by]
        content = _table(rows.data, [*groups, *_measures(rows.child)])
        name = f"{self.report}-{self.asked.first}-{self.asked.last}.csv"
        return Response(content, headers={"Content-Disposition": f'attachment; filename="{name}"'})


class UsageReportSerializer(PageSerializer, ReportSerializer):
    data = UsageTotalSerializer(many=True, read_only=True)  # type: ignore[assignment]  # DRF takes it out


class CostsReportSerializer(PageSerializer, CostReportSerializer):
    data = CostTotalSerializer(many=True, read_only=True)  # type: ignore[assignment]  # DRF takes it out


def _report_of(page_serializer: type[PageSerializer]) -> Any:
    return extend_schema(
        responses={
            (200, "application/json"): page_serializer,
            (200, "text/csv"): OpenApiTypes.STR,
        }
    )


@extend_schema_view(list=_report_of(UsageReportSerializer))
class UsageViewSet(_ReportViewSet):
    summaries: ClassVar = {"list": "Report usage"}
    serializer_class = UsageTotalSerializer
    report = "usage"
    with_latencies = True


@extend_schema_view(list=_report_of(CostsReportSerializer))
class CostsViewSet(_ReportViewSet):
    summaries: ClassVar = {"list": "Report costs"}
    serializer_class = CostTotalSerializer
    report_serializer = CostReportSerializer
    report = "cost"
    with_latencies = False

    @cached_property
    def total_nanos(self) -> int:
        """Return the cost of all rows, those of other pages too."""
        return total_cost_nanos(self.asked)


class _IsOperatorOrMay(MayInTenant):
    def has_permission(self, request: Request, view: Any) -> bool:
        return view.is_operators() or super().has_permission(request, view)


class _AnyTenants(_ReportViewSet):
    """The same without a tenant in the address."""

    permission_classes = [_IsOperatorOrMay]
    # Of `tenant_id`: an organisation that is not the caller's.
    more_refusals: ClassVar = frozenset({404})
    query_serializers: ClassVar = {"list": AnyTenantsReportQuery}

    def is_operators(self) -> bool:
        if not isinstance(self.caller, Person) or not self.caller.proofs.is_own:
            return False
        user = self.caller.user
        return user.is_staff and user.has_perm("inference.view_usagerecord")

    @property
    def tenant_id(self) -> uuid.UUID:
        given: uuid.UUID | None = self.query["tenant_id"]
        if given is not None:
            return given
        caller = self.caller
        if isinstance(caller, KeyBearer):
            return caller.key.tenant_id
        places = tenants_of(caller.user, limit=2).rows
        if len(places) != 1:
            raise InvalidRequest(
                "You belong to no tenant or to several: say which with 'tenant_id'.",
                param="tenant_id",
            )
        return places[0].tenant.id

    @contextmanager
    def walls(self) -> Iterator[None]:
        with operator_scope(f"{self.report} report") if self.is_operators() else super().walls():
            yield


class AnyTenantsUsageViewSet(_AnyTenants, UsageViewSet):
    """GET /api/v1/usage."""


class AnyTenantsCostsViewSet(_AnyTenants, CostsViewSet):
    """GET /api/v1/costs."""


def _usage_query(query: Mapping[str, Any], today: date) -> UsageQuery:
    first, last = _days(query["from"], query["to"] or today)
    return UsageQuery(
        first=first,
        last=last,
        group_by=_dimensions(query["group_by"]),
        **{name: query.get(name) for name in _FILTERS},
    )


def _days(first: date | None, last: date) -> tuple[date, date]:
    first = first or max(date.min, last - min(timedelta(_DEFAULT_DAYS - 1), last - date.min))
    if first > last:
        raise InvalidRequest("'from' must not be after 'to'.", param="from")
    if (last - first).days >= _MAX_DAYS:
        raise InvalidRequest(f"Ask for at most {_MAX_DAYS} days at once.", param="from")
    return first, last


def _dimensions(text: str) -> tuple[Dimension, ...]:
    scope = current_scope()
    sees_all = scope is not None and scope.is_operator
    known = [each for each in Dimension if each is not Dimension.TENANT or sees_all]
    names = text.split(",")
    if len(set(names)) < len(names) or not set(names) <= set(known):
        raise InvalidRequest(
            f"'group_by' takes each of these once, with commas between: {', '.join(known)}.",
            param="group_by",
        )
    return tuple(map(Dimension, names))


def _shown(dimension: Dimension) -> str:
    return "date" if dimension is Dimension.DAY else dimension.column


def _measures(row: serializers.Serializer[Any]) -> Iterator[str]:
    """Yield the columns of a row's figures; one with several has one for each."""
    for name, field in row.fields.items():
        if isinstance(field, serializers.Serializer):
            yield from (f"{name}_{part}" for part in field.fields)
        elif name not in GroupsSerializer.sometimes and name != "object":
            yield name


def _table(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    """Return the rows as CSV, under a heading also where there are none."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    for row in rows:
        flat = _flat(row)
        writer.writerow(spreadsheet_cell(flat[column]) for column in columns)
    return text.getvalue().encode()


def _flat(fields_of_row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in fields_of_row.items():
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{name}_")
        else:
            flat[f"{prefix}{name}"] = value
    return flat
