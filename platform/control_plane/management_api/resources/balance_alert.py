"""At which balance a prepaid tenant is told that it is low."""

from typing import Any, ClassVar

from rest_framework import mixins
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer

from control_plane.management_api.serializers import StrictSerializer
from control_plane.management_api.viewsets import TenantScopedViewSet
from control_plane.records import fields
from tenants.alerts.balances import set_threshold, threshold_of
from tenants.models import Tenant
from tenants.permissions import Permission
from tenants.webhooks.models import BalanceAlert


class BalanceAlertSerializer(StrictSerializer):
    """`threshold_nanos` None: never."""

    always = frozenset({"threshold_nanos"})

    object = fields.ConstantField("balance_alert")
    threshold_nanos = fields.IntegerField(min_value=0, max_value=2**62, allow_null=True)

    def update(self, _instance: BalanceAlert, validated_data: dict[str, Any]) -> BalanceAlert:
        return set_threshold(validated_data["tenant"], validated_data["threshold_nanos"])


class BalanceAlertViewSet(mixins.RetrieveModelMixin, mixins.UpdateModelMixin, TenantScopedViewSet):
    summaries: ClassVar = {
        "retrieve": "Show the balance that raises an alert",
        "partial_update": "Set the balance that raises an alert",
    }
    permission_map: ClassVar = {
        "retrieve": Permission.VIEW_BALANCE,
        "partial_update": Permission.WRITE_WEBHOOKS,
    }
    serializer_class = BalanceAlertSerializer

    def get_object(self) -> BalanceAlert:
        if self.action == "partial_update":
            # It may have no row of its own yet.
            self.locked(Tenant.objects.filter(id=self.tenant_id)).get()
        alert = threshold_of(self.tenant)
        self.check_seen(alert)
        return alert

    def perform_update(self, serializer: BaseSerializer[Any]) -> None:
        serializer.save(tenant=self.tenant)

    def partial_update(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Change the one field, which may not be left out."""
        return self.update(request, *args, **kwargs)
