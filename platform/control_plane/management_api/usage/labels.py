"""GET usage/labels: what was used by whom it was for, by the labels that projects record."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Any, ClassVar, Final

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema_view
from rest_framework import serializers

from control_plane.management_api.usage.queries import DaysQuery, groups_of
from control_plane.management_api.usage.report_viewset import ReportViewSet, as_pages_or_csv
from control_plane.management_api.usage.rows import CountersSerializer
from control_plane.records import fields
from control_plane.records.days import days_of
from gpu_workers.protocol.labels import USER, is_label_name
from inference.errors import InvalidRequest
from inference.usage.labels import usage_by_label
from tenants.money import decimal_dollars

_GROUPS: Final = {"date": "day", "project_id": "project_id", "value": "value"}


class LabelQuery(DaysQuery):
    """`name` is the label, by default `user`; `group_by` takes `value`, the default, `date` and
    `project_id`."""

    name = serializers.CharField(max_length=100, default=USER)


class LabelTotalSerializer(CountersSerializer):
    """`value` is `other` of the values beyond the first thousand of a day."""

    sometimes = frozenset(_GROUPS)

    object = fields.ConstantField("usage.label_total")
    value = fields.CharField(read_only=True)
    date = serializers.DateField(source="day", read_only=True)
    project_id = fields.UUIDField(read_only=True)
    cost_nanos = fields.IntegerField(read_only=True)
    cost_dollars = serializers.SerializerMethodField()

    def get_cost_dollars(self, row: Mapping[str, Any]) -> str:
        return decimal_dollars(int(row["cost_nanos"]), digits=9)


@extend_schema_view(list=as_pages_or_csv(LabelTotalSerializer(many=True)))
class LabelUsageViewSet(ReportViewSet):
    summaries: ClassVar = {"list": "Report usage by a label"}
    query_serializers: ClassVar = {"list": LabelQuery}
    serializer_class = LabelTotalSerializer

    @property
    def report(self) -> str:
        """Return the label's name, as the rows are of it alone."""
        name: str = self.query["name"]
        if not is_label_name(name):
            raise InvalidRequest("'name': expected a label as user or metadata.team.", param="name")
        return name

    @cached_property
    def days(self) -> tuple[date, date]:
        return days_of(self.query["from"], self.query["to"] or datetime.now(UTC).date())

    @cached_property
    def columns(self) -> list[str]:
        text = self.query["group_by"]
        return [_GROUPS[name] for name in groups_of("value" if text is None else text, _GROUPS)]

    def get_queryset(self) -> QuerySet[Any, Any]:
        first, last = self.days
        return usage_by_label(
            self.report,
            first=first,
            last=last,
            group_by=self.columns,
            project_id=self.query["project_id"],
        )
