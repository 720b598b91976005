"""The end of the organisation: what ends with it, and the name typed."""

from typing import Any, ClassVar

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from control_plane.dashboard.actions import NameTyped
from control_plane.dashboard.page import TenantPage
from control_plane.web.pages import private
from tenants.billing.invoicing.lists import unpaid_invoices
from tenants.billing.ledger.balances import balance_of
from tenants.offboarding.closing import close_by_owner, what_ends
from tenants.permissions import Permission


class ClosePage(TenantPage):
    permissions: ClassVar = {"GET": Permission.CLOSE, "POST": Permission.CLOSE}
    template_name = "dashboard/settings/close.html"
    section = "settings"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.show(self._context(NameTyped(name=self.tenant.name)))

    def post(self, request: HttpRequest) -> HttpResponse:
        form = NameTyped(request.POST, name=self.tenant.name)
        closed = None
        if form.is_valid():
            typed = form.cleaned_data["confirm_name"]
            closed = form.perform(lambda: close_by_owner(self.tenant, typed))
        if closed is None:
            return self.show(self._context(form), status=422)
        # Its pages are gone by now, and so may be the account.
        context = {"name": self.tenant.name, "closed": closed}
        return private(render(request, "dashboard/settings/closed.html", context))

    def _context(self, form: NameTyped) -> dict[str, Any]:
        return {
            "form": form,
            "ending": what_ends(self.tenant),
            "held": balance_of(self.tenant.id),
            "unpaid": unpaid_invoices(),
        }
