"""Views of the explorer that people save by name: for themselves, or for everybody in it."""

import uuid
from dataclasses import dataclass
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from control_plane.dashboard.actions import attempt
from control_plane.dashboard.forms import PageForm
from control_plane.dashboard.page import TenantPage
from control_plane.dashboard.pages.usage.forms import ExplorerForm
from tenants.access.member_access import MemberAccess
from tenants.models import Membership, SavedView
from tenants.permissions import Permission

# Who may rename the organisation may say what all of its people find.
_FOR_ALL: Final = Permission.WRITE_PROJECTS


class ViewForm(PageForm):
    unique_field = "name"

    name = forms.CharField(label="Name of the view", max_length=80)
    is_for_all = forms.BooleanField(label="For everybody in the organisation", required=False)

    def __init__(self, *args: Any, access: MemberAccess) -> None:
        super().__init__(*args)
        if not access.may_change(_FOR_ALL):
            del self.fields["is_for_all"]

    def save(self, access: MemberAccess, query: str) -> SavedView:
        """Save what the explorer shows. Raises `ValidationError` and `NotPermitted`."""
        owner: Membership | None = None
        if not self.cleaned_data.get("is_for_all"):
            owner = access.as_member()
        name = self.cleaned_data["name"]
        return SavedView.objects.add(access.tenant, owner, name=name, query=query)


@dataclass(frozen=True, kw_only=True)
class ViewRow:
    view: SavedView
    address: str
    may_delete: bool


def view_rows(access: MemberAccess) -> list[ViewRow]:
    here = reverse("dashboard:usage", args=[access.tenant.id])
    return [
        ViewRow(view=view, address=f"{here}?{view.query}", may_delete=_may_delete(view, access))
        for view in SavedView.objects.seen_by(access.membership)
    ]


def query_of(form: ExplorerForm) -> str:
    """Return the query that shows the same once more: of a range until today as many days until
    the day on which it is opened."""
    asked = form.in_force()
    first, last = form.days()
    if last == form.today:
        asked |= {"from": "", "to": "", "days": str((last - first).days + 1)}
    return urlencode({name: value for name, value in sorted(asked.items()) if value})


class DeleteViewPage(TenantPage):
    permissions: ClassVar = {"POST": Permission.VIEW_USAGE}
    section = "usage"

    def post(self, request: HttpRequest, view_id: uuid.UUID) -> HttpResponse:
        view = SavedView.objects.seen_by(self.access.membership).get(id=view_id)
        if attempt(request, lambda: self._delete(view)):
            messages.success(request, f"The view {view.name} was deleted.")
        return self.go_to(reverse("dashboard:usage", args=[self.tenant.id]))

    def _delete(self, view: SavedView) -> bool:
        if view.is_for_all:
            self.access.check(_FOR_ALL, is_change=True)
        view.delete()
        return True


def _may_delete(view: SavedView, access: MemberAccess) -> bool:
    return access.may_change(_FOR_ALL if view.is_for_all else Permission.VIEW_USAGE)
