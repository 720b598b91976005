"""Who may call, as DRF asks. What a role or a scope may do is the tenants' permission table's to
say (tenants/permissions.py)."""

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from control_plane.management_api.callers import KeyBearer, people_only


class IsKnown(BasePermission):
    """Whoever has a session or an API key that works."""

    def has_permission(self, request: Request, view: Any) -> bool:
        return request.auth is not None


class IsPerson(IsKnown):
    """Whoever has a session: what is a person's own is no API key's."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Raises `Forbidden` for an API key."""
        if isinstance(request.auth, KeyBearer):
            raise people_only()
        return super().has_permission(request, view)


class MayInTenant(IsKnown):
    """Whoever may do in the view's tenant what its `permission_map` says of the action."""

    def has_permission(self, request: Request, view: Any) -> bool:
        """Raises `NotFound` for a tenant that is not the caller's, as if there were none, and
        `Forbidden`, which says who may."""
        if not super().has_permission(request, view):
            return False
        needed = view.permission_map[view.action]
        if needed not in view.access.permissions:
            raise view.caller.refusal(needed, view.access)
        return True
