"""GET requests: what became of each request, and of one with its time line. Never what it said."""

from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from drf_spectacular.utils import extend_schema_field, extend_schema_view
from rest_framework import mixins, serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request

from control_plane.management_api.pagination import ListPagination
from control_plane.management_api.renderers import CsvRenderer
from control_plane.management_api.serializers import ListQuery
from control_plane.management_api.usage.report_viewset import as_pages_or_csv, is_csv
from control_plane.management_api.viewsets import TenantScopedViewSet
from control_plane.records import fields
from control_plane.records.filters import RequestFilter
from control_plane.records.requests import MAX_CSV_ROWS, RequestSerializer, csv_of
from inference.errors import InvalidRequest
from inference.models import UsageRecord
from inference.usage.request_log import (
    REQUESTS_ORDER,
    Step,
    find_request,
    has_more_requests,
    page_of_requests,
    timeline,
)
from tenants.exports import bounded
from tenants.permissions import Permission


class RequestQuery(ListQuery):
    """`format` csv: all that are found as one file, without pages."""

    format = fields.ChoiceField(["json", "csv"], default=None)


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
