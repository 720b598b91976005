"""The organisation's settings: its name, what its tier promises, and the ways out."""

from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse

from control_plane.dashboard.forms import PageForm
from control_plane.dashboard.page import TenantPage
from tenants.models import Tenant
from tenants.permissions import Permission, roles_with


class NameForm(PageForm):
    unique_field = "name"

    name = forms.CharField(
        label="Name of the organisation",
        max_length=200,
        help_text="Your people see it; from the next invoice on it stands there too.",
    )


class SettingsPage(TenantPage):
    """Everybody sees it; whoever may rename the organisation finds a form."""

    permissions: ClassVar = {"GET": Permission.VIEW, "POST": Permission.WRITE_PROJECTS}
    template_name = "dashboard/settings/settings.html"
    section = "settings"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.show(self._context(NameForm(initial={"name": self.tenant.name})))

    def post(self, request: HttpRequest) -> HttpResponse:
        form = NameForm(request.POST)
        if not form.is_valid() or not form.perform(lambda: _renamed(self.tenant.id, form)):
            return self.show(self._context(form), fragment="form", status=422)
        messages.success(request, "The name was saved.")
        return self.go_to(request.path)

    def _context(self, form: NameForm) -> dict[str, Any]:
        return {
            "form": form,
            "tier": self.tenant.tier,
            "may_rename": self.access.may_change(Permission.WRITE_PROJECTS),
            "renamers": roles_with(Permission.WRITE_PROJECTS),
            "may_export": self.access.may(Permission.EXPORT),
            "exporters": roles_with(Permission.EXPORT),
            "may_close": self.access.may_change(Permission.CLOSE),
            "closers": roles_with(Permission.CLOSE),
        }


def _renamed(tenant_id: Any, form: NameForm) -> bool:
    # Another copy than the page's, which shows the old name where the new one is refused.
    Tenant.objects.get(id=tenant_id).rename(form.cleaned_data["name"])
    return True
