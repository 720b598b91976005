"""Rows of reports, and what stands beside them."""

import uuid
from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from control_plane.management_api.adapters.storage import StorageSerializer
from control_plane.management_api.serializers import PageSerializer
from control_plane.records import fields
from control_plane.records.naming import NAMED
from inference.adapters.loads import Loads
from inference.adapters.storage import Storage
from inference.histograms import Histogram
from inference.usage.reports import NOBODY, Dimension, Granularity, UsageQuery, quantiles
from tenants.money import decimal_dollars


class ReportSerializer(serializers.Serializer[Any]):
    """What stands beside the rows."""

    to = serializers.DateField(source="last", read_only=True)
    granularity = serializers.ChoiceField(choices=list(Granularity), read_only=True)
    group_by = serializers.ListField(child=serializers.CharField(), read_only=True)

    def get_fields(self) -> dict[str, serializers.Field[Any, Any, Any, Any]]:
        first = serializers.DateField(source="first", read_only=True)
        return {"from": first, **super().get_fields()}


class LoadsSerializer(serializers.Serializer[Any]):
    """How often workers loaded adapters, and for how long engines stood still for that."""

    count = fields.IntegerField(read_only=True)
    seconds = serializers.FloatField(read_only=True)


class StoringReportSerializer(ReportSerializer):
    """Beside the rows, of the whole organisation, whatever the report is narrowed to: `storage` is
    what it keeps now, `adapter_loads` are those of the report's days."""

    storage = serializers.SerializerMethodField()
    adapter_loads = serializers.SerializerMethodField()

    @extend_schema_field(StorageSerializer(allow_null=True))
    def get_storage(self, _query: UsageQuery) -> Any:
        found: Storage | None = self.context["view"].storage
        return None if found is None else StorageSerializer(found).data

    @extend_schema_field(LoadsSerializer(allow_null=True))
    def get_adapter_loads(self, _query: UsageQuery) -> Any:
        found: Loads | None = self.context["view"].adapter_loads
        return None if found is None else LoadsSerializer(found).data


class CostReportSerializer(ReportSerializer):
    total_cost_nanos = serializers.SerializerMethodField()
    total_cost_dollars = serializers.SerializerMethodField()

    def get_total_cost_nanos(self, _query: UsageQuery) -> int:
        nanos: int = self.context["view"].total_nanos
        return nanos

    def get_total_cost_dollars(self, _query: UsageQuery) -> str:
        return decimal_dollars(self.context["view"].total_nanos, digits=9)


@extend_schema_field(serializers.UUIDField(allow_null=True))
class CreatorField(fields.UUIDField):
    """Null of keys that no person made, or one whose account is gone."""

    def to_representation(self, value: uuid.UUID) -> Any:
        return None if value == NOBODY else super().to_representation(value)


@extend_schema_field(serializers.CharField(allow_null=True))
class NameField(fields.CharField):
    """Null where nothing has the name any more; left out where its group was not asked for."""


class GroupsSerializer(serializers.Serializer[Any]):
    """What a row is the sum of: the groups that were asked for, and no other. Names are null where
    nothing has one any more; `created_by_email` is for who may know the organisation's people."""

    sometimes = frozenset(
        {
            "date",
            *(each.column for each in Dimension if each is not Dimension.DAY),
            *(name for name, _ in NAMED.values()),
        }
    )

    date = serializers.DateField(source="day", read_only=True)
    hour = serializers.DateTimeField(read_only=True)
    tenant_id = fields.UUIDField(read_only=True)
    project_id = fields.UUIDField(read_only=True)
    project_name = NameField(read_only=True)
    api_key_id = fields.UUIDField(read_only=True)
    api_key_name = NameField(read_only=True)
    created_by_id = CreatorField(read_only=True)
    created_by_email = NameField(read_only=True)
    model = fields.CharField(read_only=True)
    adapter = fields.CharField(read_only=True)
    tier = fields.CharField(read_only=True)
    pool = fields.CharField(read_only=True)
    service_class = fields.CharField(read_only=True)


class QuantilesSerializer(serializers.Serializer[Any]):
    """In ms; None where nothing was measured."""

    p50 = serializers.FloatField(read_only=True, allow_null=True)
    p95 = serializers.FloatField(read_only=True, allow_null=True)
    p99 = serializers.FloatField(read_only=True, allow_null=True)

    def to_representation(self, instance: Histogram) -> dict[str, Any]:
        return quantiles(instance)


class CountersSerializer(serializers.Serializer[Any]):
    """What requests came to."""

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


class UsageTotalSerializer(GroupsSerializer, CountersSerializer):
    object = fields.ConstantField("usage.total")
    ttft_ms = QuantilesSerializer(source="ttft_histogram", read_only=True)
    inter_token_ms = QuantilesSerializer(source="itl_histogram", read_only=True)
    duration_ms = QuantilesSerializer(source="duration_histogram", read_only=True)
    queue_ms = QuantilesSerializer(source="queue_histogram", read_only=True)


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


class ErrorTotalSerializer(GroupsSerializer):
    object = fields.ConstantField("error.total")
    code = fields.CharField(read_only=True)
    requests = fields.IntegerField(read_only=True)


class UsageReportSerializer(PageSerializer, StoringReportSerializer):
    data = UsageTotalSerializer(many=True, read_only=True)  # type: ignore[assignment]  # DRF takes it out


class CostsReportSerializer(PageSerializer, CostReportSerializer):
    data = CostTotalSerializer(many=True, read_only=True)  # type: ignore[assignment]  # DRF takes it out


class ErrorsReportSerializer(PageSerializer, ReportSerializer):
    data = ErrorTotalSerializer(many=True, read_only=True)  # type: ignore[assignment]  # DRF takes it out
