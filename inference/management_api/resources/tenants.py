"""Tenants: those that the caller belongs to, and one of them."""

from typing import Any, ClassVar

from rest_framework.response import Response

from inference.management_api.bodies import Fields
from inference.management_api.callers import KeyBearer, Person
from inference.management_api.lists import ListQuery, listed
from inference.management_api.view import ManagementView, TenantView
from tenants.access.people import tenants_of
from tenants.models import Tenant
from tenants.pagination import Page
from tenants.permissions import Permission


class TenantsView(ManagementView):
    parameters = {"GET": ListQuery}

    def get(self) -> Response:
        match self.caller:
            case Person():
                places = tenants_of(
                    self.caller.user, limit=self.query.limit, cursor=self.query.cursor
                )
                return listed(places, lambda place: _brief(place.tenant) | {"role": place.role})
            case KeyBearer():
                access = self.caller.access_to(self.caller.key.tenant_id)
                if Permission.VIEW not in access.permissions:
                    raise self.caller.refusal(Permission.VIEW, access)
                return listed(Page(rows=[self.caller.key.tenant], next_cursor=None), _brief)


class TenantChange(Fields):
    """All else about a tenant is the operator's."""

    name: str


class OneTenantView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW, "PATCH": Permission.WRITE_PROJECTS}

    def get(self) -> Response:
        return Response(self._rendered())

    def patch(self) -> Response:
        self.tenant.rename(self.body(TenantChange).name)
        return Response(self._rendered())

    def _rendered(self) -> dict[str, Any]:
        return _brief(self.tenant) | {
            "role": self.access.role,
            "permissions": sorted(self.access.permissions),
            "tier": self.tenant.tier.name,
            "is_suspended": self.tenant.is_suspended,
            "created_at": self.tenant.created_at,
        }


def _brief(tenant: Tenant) -> dict[str, Any]:
    return {"object": "tenant", "id": tenant.id, "name": tenant.name}
