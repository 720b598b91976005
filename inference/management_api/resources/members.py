"""Members of a tenant: who belongs to it, in which role."""

import uuid
from typing import Annotated, Any, ClassVar, Final

from msgspec import UNSET, Meta, UnsetType
from rest_framework.response import Response

from inference.management_api.bodies import Fields, Nothing
from inference.management_api.lists import ListQuery, listed
from inference.management_api.view import TenantView
from tenants.access.people import change_role, invite, remove, set_alerts
from tenants.models import Membership
from tenants.pagination import NEWEST_FIRST, Order, page
from tenants.permissions import Permission, Role

_ORDER: Final = Order(name="members", fields=NEWEST_FIRST, is_descending=True)


class Invitation(Fields):
    email: Annotated[str, Meta(max_length=254)]
    role: Role = Role.VIEWER


class MemberChange(Fields):
    """What is left out stays."""

    role: Role | UnsetType = UNSET
    gets_alerts: bool | UnsetType = UNSET


class MembersView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW_PEOPLE, "POST": Permission.WRITE_PEOPLE}
    parameters: ClassVar = {"GET": ListQuery}

    def get(self) -> Response:
        rows = Membership.objects.select_related("user")
        found = page(rows, _ORDER, limit=self.query.limit, cursor=self.query.cursor)
        return listed(found, _rendered)

    def post(self) -> Response:
        invitation = self.body(Invitation)
        membership = invite(
            self.tenant.id,
            email=invitation.email,
            role=invitation.role,
            by=self.access.permissions,
        )
        return Response(_rendered(membership), status=201)


class OneMemberView(TenantView):
    permissions: ClassVar = {
        "GET": Permission.VIEW_PEOPLE,
        "PATCH": Permission.WRITE_PEOPLE,
        "DELETE": Permission.WRITE_PEOPLE,
    }

    def get(self, member_id: uuid.UUID) -> Response:
        return Response(_rendered(self._member(member_id)))

    def patch(self, member_id: uuid.UUID) -> Response:
        change, member = self.body(MemberChange), self._member(member_id)
        by = self.access.permissions
        if change.role is not UNSET:
            member = change_role(member, change.role, by=by)
        if change.gets_alerts is not UNSET:
            member = set_alerts(member, change.gets_alerts, by=by)
        return Response(_rendered(member))

    def delete(self, member_id: uuid.UUID) -> Response:
        self.body(Nothing)
        remove(self._member(member_id), by=self.access.permissions)
        return Response(status=204)

    def _member(self, member_id: uuid.UUID) -> Membership:
        return Membership.objects.select_related("user").get(id=member_id)


def _rendered(membership: Membership) -> dict[str, Any]:
    """Render a member without the user's name, which is theirs to disclose."""
    return {
        "object": "member",
        "id": membership.id,
        "email": membership.user.email,
        "role": membership.role,
        "gets_alerts": membership.gets_alerts,
        "created_at": membership.created_at,
    }
