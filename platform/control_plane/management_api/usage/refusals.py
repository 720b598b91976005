"""GET refusals: how many requests were refused, by day or hour, project, key, model, code, limit
and scope; GET refusals/newest: the newest of them, as their callers were told."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any, ClassVar

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_view
from rest_framework import mixins, serializers
from rest_framework.response import Response

from control_plane.management_api.serializers import PageSerializer
from control_plane.management_api.usage.queries import DaysQuery, groups_of
from control_plane.management_api.usage.report_viewset import (
    ReportViewSet,
    as_pages_or_csv,
)
from control_plane.management_api.viewsets import TenantScopedViewSet
from control_plane.records import fields
from control_plane.records.days import days_of
from control_plane.records.filters import RefusalFilter
from control_plane.records.refusals import NameField, RefusalTotalSerializer, columns_of
from inference.models import NewestRefusal
from inference.refusals.reports import (
    FILTERS,
    NEWEST_FIRST,
    PERIODS,
    Dimension,
    RefusalQuery,
    aggregate,
    total,
)
from inference.usage.reports import Granularity
from tenants.permissions import Permission


class RefusalsQuery(DaysQuery):
    """By default grouped by the period and `code`. `limit_name` is the limit that refused, where
    `limit` is the length of a page; an empty text: where there was none."""

    granularity = fields.ChoiceField(list(Granularity), default=Granularity.DAY.value)
    api_key_id = fields.UUIDField(default=None)
    model = serializers.CharField(max_length=200, allow_blank=True, default=None)
    code = serializers.CharField(max_length=80, default=None)
    limit_name = serializers.CharField(max_length=40, allow_blank=True, default=None)
    scope = serializers.CharField(max_length=20, allow_blank=True, default=None)


class RefusalsReportSerializer(PageSerializer):
    """`total` is of all rows, those of other pages too."""

    data = RefusalTotalSerializer(many=True, read_only=True)  # type: ignore[assignment]  # DRF takes it out
    to = serializers.DateField(read_only=True)
    granularity = serializers.ChoiceField(choices=list(Granularity), read_only=True)
    group_by = serializers.ListField(child=serializers.CharField(), read_only=True)
    total = fields.IntegerField(read_only=True)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        return {"from": serializers.DateField(read_only=True), **super().get_fields()}


class NewestRefusalSerializer(serializers.ModelSerializer[NewestRefusal]):
    """`message` is what the caller was told, without what it quoted of the request."""

    object = fields.ConstantField("refusal")
    model = NameField(read_only=True)
    limit = NameField(read_only=True)
    scope = NameField(read_only=True)

    class Meta:
        model = NewestRefusal
        fields = (
            "object",
            "at",
            "request_id",
            "project_id",
            "api_key_id",
            "model",
            "code",
            "limit",
            "scope",
            "status",
            "message",
        )
        read_only_fields = fields


@extend_schema_view(list=as_pages_or_csv(RefusalsReportSerializer))
class RefusalsViewSet(ReportViewSet):
    summaries: ClassVar = {"list": "Report refusals"}
    query_serializers: ClassVar = {"list": RefusalsQuery}
    serializer_class = RefusalTotalSerializer
    report = "refusals"

    @cached_property
    def asked(self) -> RefusalQuery:
        return _asked(self.query, datetime.now(UTC).date())

    @property
    def days(self) -> tuple[date, date]:
        return self.asked.first, self.asked.last

    @property
    def columns(self) -> Sequence[str]:
        return columns_of(self.asked)

    def get_queryset(self) -> QuerySet[Any, Any]:
        return aggregate(self.asked)

    def get_paginated_response(self, data: Any) -> Response:
        response = super().get_paginated_response(data)
        response.data |= {
            "from": self.asked.first.isoformat(),
            "to": self.asked.last.isoformat(),
            "granularity": self.query["granularity"],
            "group_by": [str(each) for each in self.asked.group_by],
            "total": total(self.asked),
        }
        return response


class NewestRefusalsViewSet(mixins.ListModelMixin, TenantScopedViewSet):
    summaries: ClassVar = {"list": "List the newest refusals"}
    permission_map: ClassVar = {"list": Permission.VIEW_USAGE}
    serializer_class = NewestRefusalSerializer
    order = NEWEST_FIRST
    filterset_class = RefusalFilter

    def get_queryset(self) -> QuerySet[NewestRefusal]:
        return NewestRefusal.objects.all()


def _asked(query: Mapping[str, Any], today: date) -> RefusalQuery:
    first, last = days_of(query["from"], query["to"] or today, query["granularity"])
    return RefusalQuery(
        first=first,
        last=last,
        group_by=_dimensions(query["group_by"], Dimension(query["granularity"])),
        **_filters(query),
    )


def _filters(query: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is asked for, by the fields of the records."""
    given = {name: query["limit_name" if name == "limit" else name] for name in FILTERS}
    return {name: value for name, value in given.items() if value is not None}


def _dimensions(text: str | None, period: Dimension) -> tuple[Dimension, ...]:
    if text is None:
        return (period, Dimension.CODE)
    hidden = (PERIODS - {period}) | {Dimension.TENANT}
    known = [each for each in Dimension if each not in hidden]
    return tuple(map(Dimension, groups_of(text, known, granularity=period)))
