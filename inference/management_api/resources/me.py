"""GET /me: who asks, and what they may do where. For people and for keys with any scope."""

from typing import Any

from rest_framework.response import Response

from inference.management_api.callers import KeyBearer, Person
from inference.management_api.lists import MAX_ROWS
from inference.management_api.view import ManagementView
from tenants.access.people import tenants_of
from tenants.isolation.scoping import tenant_scope
from tenants.permissions import ROLE_PERMISSIONS, Role, permissions_of


class MeView(ManagementView):
    def get(self) -> Response:
        match self.caller:
            case Person():
                return Response(_of_person(self.caller))
            case KeyBearer():
                return Response(_of_key(self.caller))


def _of_person(caller: Person) -> dict[str, Any]:
    """Render a person with the first of their tenants; GET /tenants lists all."""
    page = tenants_of(caller.user, limit=MAX_ROWS)
    return {
        "object": "person",
        "email": caller.user.email,
        "name": caller.user.name,
        "tenants": [
            {
                "id": place.tenant.id,
                "name": place.tenant.name,
                "role": place.role,
                "permissions": sorted(ROLE_PERMISSIONS[Role(place.role)]),
            }
            for place in page.rows
        ],
    }


def _of_key(caller: KeyBearer) -> dict[str, Any]:
    key = caller.key
    with tenant_scope(key.tenant_id):
        return {
            "object": "api_key",
            "id": key.id,
            "name": key.name,
            "masked": key.masked,
            "project": {"id": key.project_id, "name": key.project.name},
            "tenants": [
                {
                    "id": key.tenant_id,
                    "name": key.tenant.name,
                    "scopes": caller.scopes,
                    "permissions": sorted(permissions_of(caller.scopes)),
                }
            ],
        }
