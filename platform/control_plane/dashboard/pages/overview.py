"""/t/<tenant id>/: the first steps of a new organisation; of one that has had an answer what
matters now, what of it needs attention, and what it has bought."""

from datetime import UTC, date, datetime, timedelta
from typing import Any, ClassVar, Final

from django.http import HttpRequest, HttpResponse

from control_plane.curl import chat_command
from control_plane.dashboard.limit_rows import rows_of, rows_of_tier
from control_plane.dashboard.page import TenantPage, private, wants_fragment
from inference.models.catalog import models_visible_to
from inference.usage.reports import UsageQuery, has_completed_any, totals
from tenants.access.key_lists import KeyState, list_api_keys
from tenants.access.projects import list_projects
from tenants.access.quotas import quotas_of_whole
from tenants.alerts.attention import needs_attention
from tenants.billing.ledger.balances import balance_of
from tenants.models.tenant import BillingMode
from tenants.permissions import Permission, roles_with

_FIRST_LEAD: Final = "Four steps to the first answer."
_LEAD: Final = "What matters now, what needs attention, and what this organisation has bought."


class OverviewPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW}
    template_name = "dashboard/overview.html"
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
        keys = list_api_keys(limit=1, state=KeyState.ACTIVE).rows
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
        """Return the figures of this month, and how the organisation stands against its limits."""
        limits = rows_of_tier(self.tenant) + rows_of(self.tenant, quotas_of_whole(self.tenant))
        now: dict[str, Any] = {"limits": limits, "usage": None, "credit_nanos": None}
        if self.access.may(Permission.VIEW_USAGE):
            now |= _usage(datetime.now(UTC).date())
        is_prepaid = self.tenant.billing_mode == BillingMode.PREPAID
        if is_prepaid and self.access.may(Permission.VIEW_BALANCE):
            now["credit_nanos"] = balance_of(self.tenant.id).credit_nanos
        return now


def _usage(today: date) -> dict[str, Any]:
    """Return the sums of this month so far, and of as many days of the month before."""
    first = today.replace(day=1)
    last_of_before = first - timedelta(days=1)
    first_before = last_of_before.replace(day=1)
    until = min(first_before + (today - first), last_of_before)
    return {"usage": _sums(first, today), "before": _sums(first_before, until)}


def _sums(first: date, last: date) -> dict[str, int]:
    found = totals(UsageQuery(first=first, last=last, group_by=()))
    return found | {"tokens": found["prompt_tokens"] + found["completion_tokens"]}
