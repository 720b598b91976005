"""GET models: what the tenant can call. Others do not exist for it."""

import time
from typing import Any, ClassVar

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from control_plane.management_api.callers import KeyBearer
from control_plane.management_api.pagination import OnePage
from control_plane.management_api.serializers import StrictSerializer
from control_plane.management_api.viewsets import TenantScopedViewSet
from control_plane.records import fields
from gpu_workers.protocol.policy import WHOLE, ModelPolicy
from inference.charges import half_even, prices_of
from inference.models.catalog import models_visible_to
from tenants.permissions import Permission
from tenants.policy.wire import tier_policy


class PricesSerializer(serializers.Serializer[Any]):
    """The current prices of the tenant's tier, without an adapter."""

    prompt = fields.IntegerField(read_only=True)
    cached = fields.IntegerField(read_only=True)
    completion = fields.IntegerField(read_only=True)

    def to_representation(self, instance: ModelPolicy) -> dict[str, Any]:
        prices = prices_of(instance, self.context["tier"], at_ms=time.time_ns() // 1_000_000)
        return {
            name: half_even(price * prices.permille, WHOLE)
            for name, price in (
                ("prompt", prices.prompt),
                ("cached", prices.cached),
                ("completion", prices.completion),
            )
        }


class ServedModelSerializer(serializers.Serializer[Any]):
    object = fields.ConstantField("model")
    id = fields.CharField(source="name", read_only=True)
    owned_by = fields.CharField(read_only=True)
    context_tokens = fields.IntegerField(read_only=True)
    capabilities = serializers.ListField(child=fields.CharField(), read_only=True)
    price_micros_per_million_tokens = PricesSerializer(source="*", read_only=True)


class ServedModelsQuery(StrictSerializer):
    search = fields.CharField(max_length=200, default=None)


class ServedModelViewSet(TenantScopedViewSet):
    """The catalogue is an operator's, and short: one page."""

    summaries: ClassVar = {"list": "List the models that the organisation can call"}
    permission_map: ClassVar = {"list": Permission.VIEW}
    query_serializers: ClassVar = {"list": ServedModelsQuery}
    pagination_class = OnePage
    serializer_class = ServedModelSerializer

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), "tier": tier_policy(self.tenant.tier)}

    def list(self, request: Request, **_ids: Any) -> Response:
        wanted = (self.query["search"] or "").casefold()
        visible = models_visible_to(self.tenant.id)
        models = [model for model in visible if wanted in model.name.casefold()]
        if isinstance(self.caller, KeyBearer) and self.caller.key.allowed_models is not None:
            models = [model for model in models if model.name in self.caller.key.allowed_models]
        return self.get_paginated_response(self.get_serializer(models, many=True).data)
