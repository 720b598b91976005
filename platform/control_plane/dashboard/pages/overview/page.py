"""/t/<tenant id>/: the first steps of a new organisation; of one that has had an answer what
matters now, what of it needs attention, and what it has bought."""

from datetime import UTC, datetime
from typing import Any, ClassVar, Final

from django.http import HttpRequest, HttpResponse

from control_plane.curl import chat_command
from control_plane.dashboard.page import TenantPage, wants_fragment
from control_plane.dashboard.pages.overview.charts import charts
from control_plane.dashboard.pages.overview.now import now_context
from control_plane.dashboard.pages.usage_links import Narrowed
from control_plane.dashboard.storage_rows import rows_of_storage
from control_plane.records.limit_rows import rows_of, rows_of_tier
from control_plane.web.pages import private
from inference.models.catalog import models_visible_to
from inference.usage.overview import Days
from inference.usage.reports import has_completed_any
from tenants.access.key_lists import KeyState, list_api_keys
from tenants.access.projects import list_projects
from tenants.access.quotas import quotas_of_whole
from tenants.alerts.attention import needs_attention
from tenants.permissions import Permission, roles_with

_FIRST_LEAD: Final = "Four steps to the first answer."
_LEAD: Final = "What matters now, what needs attention, and what this organisation has bought."


class OverviewPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW}
    template_name = "dashboard/overview/page.html"
    section = "overview"

    def get(self, request: HttpRequest) -> HttpResponse:
        is_new = not has_completed_any()
        if is_new and wants_fragment(request):
            # Asked for the first answer, and there is none yet: what is shown stays.
            return private(HttpResponse(status=204))
        context = {
            "lead": _FIRST_LEAD if is_new else _LEAD,
            "tier": self.tenant.tier,
            "attention": needs_attention(self.tenant, self.access.permissions),
            "is_new": is_new,
            "steps": self._first_steps() if is_new else None,
            "now": None if is_new else self._now(),
        }
        return self.show(context, fragment="first_answer")

    def _first_steps(self) -> dict[str, Any]:
        """Return how far a new organisation has come, and what takes it further."""
        projects = list_projects(limit=1).rows
        keys = list_api_keys(limit=1, state=KeyState.ACTIVE, with_playgrounds=False).rows
        models = models_visible_to(self.tenant.id)
        return {
            "project": projects[0] if projects else None,
            "key": keys[0] if keys else None,
            "curl": chat_command(models[0].name if models else "<model>"),
            "may_write_projects": self.access.may_change(Permission.WRITE_PROJECTS),
            "project_writers": roles_with(Permission.WRITE_PROJECTS),
            "may_write_keys": self.access.may_change(Permission.WRITE_KEYS),
            "key_writers": roles_with(Permission.WRITE_KEYS),
        }

    def _now(self) -> dict[str, Any]:
        """Return how the organisation stands, and against its limits."""
        today = datetime.now(UTC).date()
        month = Narrowed(days=Days.of_month(today), given={})
        may_view_adapters = self.access.may(Permission.VIEW_ADAPTERS)
        return now_context(self.access) | {
            "limits": rows_of_tier(self.tenant)
            + rows_of(self.tenant, quotas_of_whole(self.tenant)),
            "storage": rows_of_storage(self.tenant) if may_view_adapters else [],
            "charts": charts(today),
            "links": month.tabs("", self.tenant.id),
        }
