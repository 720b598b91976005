"""Quotas: limits of the tenant, its projects and its keys, and the alerts that they raised."""

from typing import Any, ClassVar, Final

from django.db.models import QuerySet
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import mixins, serializers
from rest_framework.response import Response
from rest_framework.viewsets import ModelViewSet

from control_plane.management_api.serializers import PageSerializer, StrictSerializer
from control_plane.management_api.viewsets import TenantScopedViewSet
from control_plane.records import fields
from control_plane.records.filters import QuotaAlertFilter, QuotaFilter
from gpu_workers.protocol.policy import QUOTA_NAMES
from tenants.access.quotas import QUOTAS_ORDER, add_quota, change_quota, remove_quota
from tenants.models import Quota, QuotaAlert
from tenants.models.quota import MAX_ALERT_PERCENTS
from tenants.pagination import BY_ID, Order
from tenants.permissions import Permission

_ALERTS: Final = Order(name="quota alerts", fields=BY_ID)


def _percents(**options: Any) -> fields.ListField:
    share = fields.IntegerField(min_value=1, max_value=1000)
    return fields.ListField(child=share, max_length=MAX_ALERT_PERCENTS, required=False, **options)


class QuotaSerializer(StrictSerializer):
    """`value` is tokens, requests or, of spend, nano-dollars. Of the whole organisation members set
    those that are `is_own`; the others are the operator's, and hold beside them."""

    object = fields.ConstantField("quota")
    id = fields.UUIDField(read_only=True)
    scope = fields.CharField(read_only=True)
    project_id = fields.UUIDField(read_only=True, allow_null=True)
    api_key_id = fields.UUIDField(read_only=True, allow_null=True)
    limit = fields.ChoiceField(QUOTA_NAMES, read_only=True)
    value = fields.IntegerField(min_value=1, max_value=2**63 - 1)
    is_hard = fields.BooleanField(default=True)
    is_own = fields.BooleanField(read_only=True)
    alert_percents = _percents()

    def update(self, instance: Quota, validated_data: dict[str, Any]) -> Quota:
        return change_quota(instance, **validated_data)


class NewQuotaSerializer(QuotaSerializer):
    """At a project, at a key or, with neither, of the whole organisation."""

    limit = fields.ChoiceField(QUOTA_NAMES)
    project_id = fields.UUIDField(allow_null=True, required=False)
    api_key_id = fields.UUIDField(allow_null=True, required=False)
    alert_percents = _percents(allow_null=True)

    def create(self, validated_data: dict[str, Any]) -> Quota:
        return add_quota(**validated_data)


class LimitsSerializer(serializers.Serializer[Any]):
    """None is no limit."""

    requests_per_minute = fields.IntegerField(read_only=True, allow_null=True)
    tokens_per_minute = fields.IntegerField(read_only=True, allow_null=True)
    concurrent_requests = fields.IntegerField(
        source="max_concurrent_requests", read_only=True, allow_null=True
    )


class TierLimitsSerializer(serializers.Serializer[Any]):
    """The tier's limits, which hold for the whole tenant."""

    name = fields.CharField(read_only=True)
    limits = LimitsSerializer(source="*", read_only=True)


class QuotaPageSerializer(PageSerializer):
    data = QuotaSerializer(many=True, read_only=True)  # type: ignore[assignment]  # DRF takes it out
    tier = TierLimitsSerializer(read_only=True)


@extend_schema_view(list=extend_schema(responses=QuotaPageSerializer))
class QuotaViewSet(ModelViewSet[Any], TenantScopedViewSet):
    summaries: ClassVar = {
        "list": "List quotas",
        "create": "Set a quota of the organisation, a project or a key",
        "retrieve": "Show a quota",
        "partial_update": "Change a quota",
        "destroy": "Remove a quota",
    }
    permission_map: ClassVar = {
        "list": Permission.VIEW,
        "create": Permission.WRITE_QUOTAS,
        "retrieve": Permission.VIEW,
        "partial_update": Permission.WRITE_QUOTAS,
        "destroy": Permission.WRITE_QUOTAS,
    }
    serializer_class = QuotaSerializer
    serializer_classes: ClassVar = {"create": NewQuotaSerializer}
    order = QUOTAS_ORDER
    filterset_class = QuotaFilter
    lookup_url_kwarg = "quota_id"

    def get_queryset(self) -> QuerySet[Quota]:
        return Quota.objects.all()

    def get_paginated_response(self, data: Any) -> Response:
        response = super().get_paginated_response(data)
        response.data["tier"] = TierLimitsSerializer(self.tenant.tier).data
        return response

    def perform_create(self, serializer: serializers.BaseSerializer[Any]) -> None:
        serializer.save(tenant=self.tenant, by=self.access.principal)

    def perform_update(self, serializer: serializers.BaseSerializer[Any]) -> None:
        serializer.save(by=self.access.principal)

    def perform_destroy(self, instance: Quota) -> None:
        remove_quota(instance, by=self.access.principal)


class QuotaAlertSerializer(serializers.Serializer[Any]):
    object = fields.ConstantField("quota.alert")
    id = fields.UUIDField(read_only=True)
    quota_id = fields.UUIDField(read_only=True)
    period = fields.CharField(read_only=True)
    percent = fields.IntegerField(read_only=True)
    used = fields.IntegerField(read_only=True)
    raised_at = fields.DateTimeField(read_only=True)


class QuotaAlertViewSet(mixins.ListModelMixin, TenantScopedViewSet):
    summaries: ClassVar = {"list": "List the alerts that quotas raised"}
    permission_map: ClassVar = {"list": Permission.VIEW}
    serializer_class = QuotaAlertSerializer
    order = _ALERTS
    filterset_class = QuotaAlertFilter

    def get_queryset(self) -> QuerySet[QuotaAlert]:
        return QuotaAlert.objects.all()
