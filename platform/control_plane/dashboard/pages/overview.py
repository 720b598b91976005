"""/t/<tenant id>/: what the organisation has bought, and what of it needs attention now."""

from typing import ClassVar

from django.http import HttpRequest, HttpResponse

from control_plane.dashboard.page import TenantPage
from tenants.alerts.attention import needs_attention
from tenants.permissions import Permission


class OverviewPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW}
    template_name = "dashboard/overview.html"
    section = "overview"

    def get(self, request: HttpRequest) -> HttpResponse:
        context = {
            "tier": self.tenant.tier,
            "attention": needs_attention(self.tenant, self.access.permissions),
        }
        return self.show(context)
