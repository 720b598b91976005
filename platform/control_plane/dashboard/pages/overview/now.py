"""The overview's live panels, of which an open page asks for all at once every two seconds."""

from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from control_plane.dashboard.page import TenantPage
from control_plane.dashboard.pages.overview.month import month_panel
from control_plane.dashboard.pages.overview.open_now import open_panel
from control_plane.live.panels import EVERY_MS, current
from inference.usage.overview import FORECAST_RULE
from tenants.access.member_access import MemberAccess
from tenants.billing.ledger.balances import balance_of
from tenants.models.tenant import BillingMode
from tenants.permissions import Permission


class NowPage(TenantPage):
    """The panels alone."""

    permissions: ClassVar = {"GET": Permission.VIEW_USAGE}
    template_name = "dashboard/overview/now.html"
    section = "overview"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.show({"now": now_context(self.access)})


def now_context(access: MemberAccess) -> dict[str, Any]:
    """Return what the panels and the page around them take. The credit is in no reading, as not
    all who share one may know it."""
    tenant = access.tenant
    knows_credit = access.may(Permission.VIEW_BALANCE)
    is_prepaid = tenant.billing_mode == BillingMode.PREPAID
    return {
        "month": current(month_panel(tenant)),
        "open": current(open_panel(tenant)),
        "credit_nanos": balance_of(tenant.id).credit_nanos if knows_credit and is_prepaid else None,
        "rule": FORECAST_RULE,
        "address": reverse("dashboard:now", args=[tenant.id]),
        "every_ms": EVERY_MS,
    }
