"""At which balance a prepaid tenant is told that it is low."""

from typing import Annotated, Any, ClassVar

from msgspec import Meta
from rest_framework.response import Response

from inference.management_api.bodies import Fields
from inference.management_api.view import TenantView
from tenants.alerts.balances import set_threshold, threshold_of
from tenants.permissions import Permission
from tenants.webhooks.models import BalanceAlert


class Threshold(Fields):
    """None: never."""

    threshold_nanos: Annotated[int, Meta(ge=0, le=2**62)] | None


class BalanceAlertView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW_BALANCE, "PATCH": Permission.WRITE_WEBHOOKS}

    def get(self) -> Response:
        return Response(_rendered(threshold_of(self.tenant)))

    def patch(self) -> Response:
        nanos = self.body(Threshold).threshold_nanos
        return Response(_rendered(set_threshold(self.tenant, nanos)))


def _rendered(alert: BalanceAlert) -> dict[str, Any]:
    return {"object": "balance_alert", "threshold_nanos": alert.threshold_nanos}
