"""GET requests: what became of each request, and of one with its time line. Never what it said."""

import csv
import io
import json
import uuid
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any, ClassVar, Final

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from drf_spectacular.utils import extend_schema_field, extend_schema_view
from rest_framework import mixins, serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from gpu_workers.protocol.messages import Outcome
from inference.errors import InvalidRequest
from inference.management_api import fields
from inference.management_api.filters import RequestFilter
from inference.management_api.pagination import ListPagination
from inference.management_api.renderers import CsvRenderer
from inference.management_api.serializers import ListQuery
from inference.management_api.usage.report_viewset import as_pages_or_csv, is_csv
from inference.management_api.viewsets import TenantScopedViewSet
from inference.models import UsageRecord
from inference.usage.request_log import (
    REQUESTS_ORDER,
    Step,
    find_request,
    has_more_requests,
    page_of_requests,
    timeline,
)
from tenants.exports import bounded, read_part
from tenants.isolation.scoping import tenant_scope
from tenants.money import decimal_dollars
from tenants.pagination import Page
from tenants.permissions import Permission
from tenants.spreadsheet import spreadsheet_cell

MAX_CSV_ROWS: Final = 100_000
ROWS_AT_ONCE: Final = 1000


class RequestQuery(ListQuery):
    """`format` csv: all that are found as one file, without pages."""

    format = fields.ChoiceField(["json", "csv"], default=None)


class RequestSerializer(serializers.Serializer[Any]):
    """Times in ms; None where the moment never came. `created_by_id` is the member who made the
    key, if one did; `created_by_email` is for who may know the organisation's people."""

    object = fields.ConstantField("request")
    id = fields.UUIDField(source="request_id", read_only=True)
    arrived_at = fields.DateTimeField(read_only=True)
    finished_at = fields.DateTimeField(read_only=True)
    project_id = fields.UUIDField(read_only=True)
    project_name = fields.CharField(source="project.name", read_only=True)
    api_key_id = fields.UUIDField(read_only=True)
    api_key_name = serializers.SerializerMethodField()
    created_by_id = fields.UUIDField(
        source="api_key.created_by_id", read_only=True, allow_null=True
    )
    created_by_email = serializers.SerializerMethodField()
    model = fields.CharField(read_only=True)
    adapter = fields.CharField(read_only=True)
    adapter_version = serializers.SerializerMethodField()
    tier = fields.CharField(read_only=True)
    service_class = fields.CharField(read_only=True)
    api = fields.CharField(read_only=True)
    stream = fields.BooleanField(read_only=True)
    outcome = serializers.ChoiceField([str(each) for each in Outcome], read_only=True)
    finish_reason = fields.CharField(read_only=True, allow_null=True)
    error_code = fields.CharField(read_only=True, allow_null=True)
    prompt_tokens = fields.IntegerField(read_only=True)
    cached_tokens = fields.IntegerField(read_only=True)
    completion_tokens = fields.IntegerField(read_only=True)
    reasoning_tokens = fields.IntegerField(read_only=True)
    cost_nanos = fields.IntegerField(read_only=True)
    cost_dollars = serializers.SerializerMethodField()
    queue_ms = fields.IntegerField(read_only=True, allow_null=True)
    ttft_ms = fields.IntegerField(read_only=True, allow_null=True)
    inter_token_p50_ms = serializers.FloatField(
        source="itl_p50_ms", read_only=True, allow_null=True
    )
    inter_token_p95_ms = serializers.FloatField(
        source="itl_p95_ms", read_only=True, allow_null=True
    )
    duration_ms = fields.IntegerField(read_only=True)
    labels = serializers.SerializerMethodField()

    def get_api_key_name(self, record: UsageRecord) -> str:
        return record.api_key.title

    @extend_schema_field({"type": ["string", "null"]})
    def get_created_by_email(self, record: UsageRecord) -> str | None:
        creator = record.api_key.created_by
        return creator.email if creator and self.context.get("names_people") else None

    @extend_schema_field({"type": "object", "additionalProperties": {"type": "string"}})
    def get_labels(self, record: UsageRecord) -> dict[str, str]:
        return record.labels or {}

    @extend_schema_field({"type": ["integer", "null"]})
    def get_adapter_version(self, record: UsageRecord) -> int | None:
        return record.adapter_version or None

    def get_cost_dollars(self, record: UsageRecord) -> str:
        return decimal_dollars(record.cost_nanos, digits=9)


class RequestPricesSerializer(serializers.Serializer[Any]):
    """Pico-dollars a token, which is micro-dollars a million; a permille on the sum of all."""

    prompt = fields.IntegerField(source="price_prompt", read_only=True)
    cached = fields.IntegerField(source="price_cached", read_only=True)
    completion = fields.IntegerField(source="price_completion", read_only=True)
    permille = fields.IntegerField(source="price_permille", read_only=True)


class StepSerializer(serializers.Serializer[Any]):
    step = serializers.ChoiceField([str(each) for each in Step], read_only=True)
    at = fields.DateTimeField(read_only=True)
    since_arrival_ms = fields.IntegerField(read_only=True)
    attempt = fields.IntegerField(read_only=True, allow_null=True)
    worker_id = fields.CharField(read_only=True, allow_null=True)
    reason = fields.CharField(read_only=True)
    wasted_tokens = fields.IntegerField(read_only=True)


class OneRequestSerializer(RequestSerializer):
    prices = RequestPricesSerializer(source="*", read_only=True)
    attempts = fields.IntegerField(source="attempt", read_only=True)
    timeline = serializers.SerializerMethodField()

    @extend_schema_field(StepSerializer(many=True))
    def get_timeline(self, record: UsageRecord) -> list[dict[str, Any]]:
        return list(StepSerializer(timeline(record), many=True).data)


class RequestPagination(ListPagination):
    """Finds pages as the log does."""

    def paginate_queryset(
        self, queryset: Any, request: Request, view: Any = None
    ) -> list[Any] | None:
        found = page_of_requests(
            queryset, view.get_order(), limit=view.query["limit"], cursor=view.query["cursor"]
        )
        self.next_cursor = found.next_cursor
        return found.rows


@extend_schema_view(list=as_pages_or_csv(RequestSerializer(many=True)))
class RequestViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, TenantScopedViewSet):
    summaries: ClassVar = {
        "list": "List requests",
        "retrieve": "Show what became of a request",
    }
    permission_map: ClassVar = {
        "list": Permission.VIEW_USAGE,
        "retrieve": Permission.VIEW_USAGE,
    }
    query_serializers: ClassVar = {"list": RequestQuery}
    serializer_class = RequestSerializer
    serializer_classes: ClassVar = {"retrieve": OneRequestSerializer}
    renderer_classes = [JSONRenderer, CsvRenderer]
    pagination_class = RequestPagination
    order = REQUESTS_ORDER
    filterset_class = RequestFilter
    lookup_url_kwarg = "request_id"

    @property
    def names_people(self) -> bool:
        return Permission.VIEW_PEOPLE in self.access.permissions

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "names_people": self.names_people}

    def get_queryset(self) -> QuerySet[UsageRecord]:
        return UsageRecord.objects.all()

    def get_object(self) -> UsageRecord:
        return find_request(self.kwargs["request_id"])

    def list(self, request: Request, *args: Any, **kwargs: Any) -> Any:
        if not is_csv(self, request):
            return super().list(request, *args, **kwargs)
        found = self.filter_queryset(self.get_queryset())
        if has_more_requests(found, MAX_CSV_ROWS):
            raise InvalidRequest(
                f"A file holds up to {MAX_CSV_ROWS} requests; ask for a shorter time.",
                param="since",
            )
        return StreamingHttpResponse(
            bounded(
                self.tenant.id,
                csv_of(self.tenant.id, request.query_params, names_people=self.names_people),
            ),
            content_type="text/csv; charset=utf-8",
            headers={"Content-Disposition": 'attachment; filename="requests.csv"'},
        )


async def csv_of(
    tenant_id: uuid.UUID, chosen: Mapping[str, Any], *, names_people: bool
) -> AsyncGenerator[bytes]:
    """Yield the file of what these filters find, which are valid, with the addresses of keys'
    creators if it `names_people`. Each part is a transaction of its own: a reader who is slow holds
    none."""
    given = {name: chosen[name] for name in RequestFilter.base_filters if chosen.get(name)}
    yield _table([_COLUMNS])
    rows, cursor = 0, None
    while True:
        found = await read_part(_part, tenant_id, given, cursor, names_people)
        rows, cursor = rows + len(found.rows), found.next_cursor
        yield _table(map(_cells, found.rows))
        # What has come since it was counted.
        if cursor is None or rows >= MAX_CSV_ROWS:
            return


def _part(
    tenant_id: uuid.UUID, given: Mapping[str, Any], cursor: str | None, names_people: bool
) -> Page[Mapping[str, Any]]:
    with tenant_scope(tenant_id):
        wanted = RequestFilter(given, queryset=UsageRecord.objects.all())
        wanted.is_valid()
        found = page_of_requests(
            wanted.qs, wanted.order(REQUESTS_ORDER), limit=ROWS_AT_ONCE, cursor=cursor
        )
        context = {"names_people": names_people}
        shown = RequestSerializer(found.rows, many=True, context=context).data
        return Page(rows=list(shown), next_cursor=found.next_cursor)


_COLUMNS: Final = tuple(name for name in RequestSerializer().get_fields() if name != "object")


def _cells(row: Mapping[str, Any]) -> list[object]:
    cells = {**row, "labels": json.dumps(row["labels"], ensure_ascii=False)}
    return [spreadsheet_cell(cells[name]) for name in _COLUMNS]


def _table(rows: Iterable[Iterable[object]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()
