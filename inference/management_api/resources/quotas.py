"""Quotas: limits of the tenant, its projects and its keys, and the alerts that they raised."""

import uuid
from typing import Annotated, Any, ClassVar, Final

from msgspec import UNSET, Meta, UnsetType
from rest_framework.response import Response

from gpu_workers.protocol.policy import QUOTA_NAMES, LimitName
from inference.errors import InvalidRequest
from inference.management_api.bodies import Fields, Nothing, given_fields
from inference.management_api.lists import ListQuery, listed
from inference.management_api.view import TenantView
from tenants.access.quotas import add_quota, change_quota, remove_quota
from tenants.models import Quota, QuotaAlert, Tier
from tenants.models.quota import MAX_ALERT_PERCENTS
from tenants.pagination import BY_ID, Order, page
from tenants.permissions import Permission

_ORDER: Final = Order(name="quotas", fields=BY_ID)
_ALERTS: Final = Order(name="quota alerts", fields=BY_ID)

Value = Annotated[int, Meta(ge=1, le=2**63 - 1)]
_Percents = Annotated[
    list[Annotated[int, Meta(ge=1, le=1000)]], Meta(max_length=MAX_ALERT_PERCENTS)
]


class NewQuota(Fields):
    """At a project or at a key; tokens, requests or, of spend, nano-dollars."""

    limit: LimitName
    value: Value
    is_hard: bool = True
    project_id: uuid.UUID | None = None
    api_key_id: uuid.UUID | None = None
    alert_percents: _Percents | None = None


class QuotaChange(Fields):
    value: Value | UnsetType = UNSET
    is_hard: bool | UnsetType = UNSET
    alert_percents: _Percents | UnsetType = UNSET


class QuotasView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW, "POST": Permission.WRITE_QUOTAS}
    parameters: ClassVar = {"GET": ListQuery}

    def get(self) -> Response:
        rows = Quota.objects.all()
        found = page(rows, _ORDER, limit=self.query.limit, cursor=self.query.cursor)
        return listed(found, _rendered, tier=_tier(self.tenant.tier))

    def post(self) -> Response:
        new = self.body(NewQuota)
        if new.limit not in QUOTA_NAMES:
            raise InvalidRequest(
                f"{new.limit.value} is no quota: it is what the tenant has paid.", param="limit"
            )
        quota = add_quota(
            self.tenant,
            limit=new.limit,
            value=new.value,
            is_hard=new.is_hard,
            project_id=new.project_id,
            api_key_id=new.api_key_id,
            alert_percents=new.alert_percents,
        )
        return Response(_rendered(quota), status=201)


class OneQuotaView(TenantView):
    permissions: ClassVar = {
        "GET": Permission.VIEW,
        "PATCH": Permission.WRITE_QUOTAS,
        "DELETE": Permission.WRITE_QUOTAS,
    }

    def get(self, quota_id: uuid.UUID) -> Response:
        return Response(_rendered(Quota.objects.get(id=quota_id)))

    def patch(self, quota_id: uuid.UUID) -> Response:
        change = self.body(QuotaChange)
        quota = change_quota(Quota.objects.get(id=quota_id), **given_fields(change))
        return Response(_rendered(quota))

    def delete(self, quota_id: uuid.UUID) -> Response:
        self.body(Nothing)
        remove_quota(Quota.objects.get(id=quota_id))
        return Response(status=204)


class QuotaAlertsView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW}
    parameters: ClassVar = {"GET": ListQuery}

    def get(self) -> Response:
        rows = QuotaAlert.objects.all()
        found = page(rows, _ALERTS, limit=self.query.limit, cursor=self.query.cursor)
        return listed(found, _rendered_alert)


def _rendered(quota: Quota) -> dict[str, Any]:
    return {
        "object": "quota",
        "id": quota.id,
        "scope": quota.scope,
        "project_id": quota.project_id,
        "api_key_id": quota.api_key_id,
        "limit": quota.limit,
        "value": quota.value,
        "is_hard": quota.is_hard,
        "alert_percents": quota.alert_percents,
    }


def _tier(tier: Tier) -> dict[str, Any]:
    """Render the tier's limits, which hold for the whole tenant; None is no limit."""
    return {
        "name": tier.name,
        "limits": {
            LimitName.REQUESTS_PER_MINUTE: tier.requests_per_minute,
            LimitName.TOKENS_PER_MINUTE: tier.tokens_per_minute,
            LimitName.CONCURRENT_REQUESTS: tier.max_concurrent_requests,
        },
    }


def _rendered_alert(alert: QuotaAlert) -> dict[str, Any]:
    return {
        "object": "quota.alert",
        "id": alert.id,
        "quota_id": alert.quota_id,
        "period": alert.period,
        "percent": alert.percent,
        "used": alert.used,
        "raised_at": alert.raised_at,
    }
