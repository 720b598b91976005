"""Members of a tenant: who belongs to it, in which role."""

from typing import ClassVar

from django.http import HttpRequest, HttpResponse

from control_plane.dashboard.lists import ROWS, page_of
from control_plane.dashboard.page import TenantPage
from tenants.access.people import list_members
from tenants.permissions import Permission, Role, roles_with

_ROLES = (
    (Role.OWNER, "Everything, including closing the organisation."),
    (Role.ADMIN, "Everything but closing the organisation."),
    (Role.DEVELOPER, "API keys and adapters; sees projects, usage and webhooks."),
    (Role.BILLING, "Balance, invoices and exports; sees projects and usage."),
    (Role.VIEWER, "Sees projects, keys, limits and usage; changes nothing."),
)


class MembersPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW_PEOPLE}
    template_name = "dashboard/members.html"
    section = "members"

    def get(self, request: HttpRequest) -> HttpResponse:
        page = page_of(request, lambda cursor: list_members(limit=ROWS, cursor=cursor))
        context = {
            "page": page,
            "roles": _ROLES,
            "may_write": self.access.may_change(Permission.WRITE_PEOPLE),
            "writers": roles_with(Permission.WRITE_PEOPLE),
        }
        return self.show(context, fragment="list")
