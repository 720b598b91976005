"""All that belongs to the organisation, as a file."""

from functools import partial
from typing import ClassVar

from django.http import HttpRequest, HttpResponse, HttpResponseBase

from control_plane.dashboard.actions import attempt
from control_plane.dashboard.downloads import streamed
from control_plane.dashboard.page import TenantPage
from tenants.offboarding.download import begin_export
from tenants.permissions import Permission


class ExportPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.EXPORT, "POST": Permission.EXPORT}
    template_name = "dashboard/settings/export.html"
    section = "settings"
    # Whoever may look may take what they see with them.
    while_suspended: ClassVar[bool] = True

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.show({})

    def post(self, request: HttpRequest) -> HttpResponseBase:
        file = attempt(request, partial(begin_export, self.tenant, self.access.permissions))
        if file is None:
            return self.go_to(request.path)
        return streamed(file, f"{self.tenant.id}.jsonl", "application/x-ndjson")
