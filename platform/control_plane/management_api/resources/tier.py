"""GET tier: what the tenant has bought. Changing it is the operator's."""

from typing import Any, ClassVar

from rest_framework import mixins, serializers

from control_plane.management_api.viewsets import TenantScopedViewSet
from control_plane.records import fields
from tenants.models import Tier
from tenants.models.tier import ServiceClass
from tenants.permissions import Permission


class TierSerializer(serializers.Serializer[Any]):
    object = fields.ConstantField("tier")
    name = fields.CharField(read_only=True)
    service_class = serializers.ChoiceField(ServiceClass.values, read_only=True)
    weight = fields.IntegerField(read_only=True)
    ttft_target_ms = fields.IntegerField(read_only=True)
    inter_token_target_ms = fields.IntegerField(read_only=True)
    uptime_percent = serializers.FloatField(read_only=True)
    max_queue_seconds = fields.IntegerField(read_only=True)
    requests_per_minute = fields.IntegerField(read_only=True)
    tokens_per_minute = fields.IntegerField(read_only=True, allow_null=True)
    max_concurrent_requests = fields.IntegerField(read_only=True)
    max_context_tokens = fields.IntegerField(read_only=True, allow_null=True)
    default_max_output_tokens = fields.IntegerField(read_only=True)
    max_output_tokens = fields.IntegerField(read_only=True)
    max_adapters = fields.IntegerField(read_only=True)
    max_adapter_versions = fields.IntegerField(read_only=True)
    max_adapter_bytes = fields.IntegerField(read_only=True)
    max_adapter_rank = fields.IntegerField(read_only=True)
    max_adapter_load_seconds = fields.IntegerField(read_only=True)
    max_pinned_adapters = fields.IntegerField(read_only=True)
    max_projects = fields.IntegerField(read_only=True)
    max_api_keys = fields.IntegerField(read_only=True)
    max_members = fields.IntegerField(read_only=True)
    max_quotas = fields.IntegerField(read_only=True)
    max_webhooks = fields.IntegerField(read_only=True)
    max_websockets = fields.IntegerField(read_only=True)
    price_multiplier = serializers.FloatField(read_only=True)


class TierViewSet(mixins.RetrieveModelMixin, TenantScopedViewSet):
    summaries: ClassVar = {"retrieve": "Show the tier"}
    permission_map: ClassVar = {"retrieve": Permission.VIEW}
    serializer_class = TierSerializer

    def get_object(self) -> Tier:
        return self.tenant.tier
