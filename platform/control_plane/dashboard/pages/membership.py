"""One's own place in a tenant: leaving it, and handing its ownership over."""

import uuid
from typing import Any, ClassVar

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from control_plane.dashboard.actions import NameTyped
from control_plane.dashboard.page import TenantPage
from control_plane.dashboard.pages.members import member_of, own_membership
from tenants.access.people import keys_made_by, leave, transfer_ownership
from tenants.models import Membership
from tenants.permissions import Permission


class LeavePage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW, "POST": Permission.VIEW}
    template_name = "dashboard/members/leave.html"
    section = "members"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.show(self._context(NameTyped(name=self.tenant.name)))

    def post(self, request: HttpRequest) -> HttpResponse:
        name = self.tenant.name
        form = NameTyped(request.POST, name=name)
        if not form.is_valid() or not form.perform(self._leave):
            return self.show(self._context(form), fragment="form", status=422)
        messages.success(request, f"You left {name}.")
        return self.go_to(reverse("dashboard:organisations"))

    def _leave(self) -> bool:
        leave(own_membership(self))
        return True

    def _context(self, form: NameTyped) -> dict[str, Any]:
        return {
            "form": form,
            "key_count": keys_made_by(own_membership(self)).count(),
            "cancel": reverse("dashboard:overview", args=[self.tenant.id]),
        }


class TransferPage(TenantPage):
    """Ownership goes to one member, who is named in the address."""

    permissions: ClassVar = {"GET": Permission.TRANSFER, "POST": Permission.TRANSFER}
    template_name = "dashboard/members/transfer.html"
    section = "members"

    def get(self, request: HttpRequest, member_id: uuid.UUID) -> HttpResponse:
        return self.show(self._context(member_of(member_id), NameTyped(name=self.tenant.name)))

    def post(self, request: HttpRequest, member_id: uuid.UUID) -> HttpResponse:
        member = member_of(member_id)
        form = NameTyped(request.POST, name=self.tenant.name)
        if not form.is_valid() or not form.perform(lambda: self._transfer(member)):
            return self.show(self._context(member, form), fragment="form", status=422)
        messages.success(request, f"{member.user.email} is an owner now, and you are an admin.")
        return self.go_to(reverse("dashboard:members", args=[self.tenant.id]))

    def _transfer(self, member: Membership) -> Membership:
        return transfer_ownership(member, by=own_membership(self))

    def _context(self, member: Membership, form: NameTyped) -> dict[str, Any]:
        cancel = reverse("dashboard:member", args=[self.tenant.id, member.id])
        return {"member": member, "form": form, "cancel": cancel}
