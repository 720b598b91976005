"""Members of a tenant: who belongs to it, in which role, and who is invited; one of them; removing
one."""

import uuid
from typing import Any, ClassVar, Final

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from control_plane.dashboard.actions import NameTyped
from control_plane.dashboard.forms import PageForm
from control_plane.dashboard.lists import ROWS, page_of
from control_plane.dashboard.page import TenantPage
from tenants.access.invitations.inviting import list_pending
from tenants.access.people import change_role, keys_made_by, list_members, remove, set_alerts
from tenants.models import Membership
from tenants.permissions import Permission, Role, may_grant

# Of what a page lists beside the members: more is behind the API.
_PENDING: Final = 50
_KEYS: Final = 50

ROLES = (
    (Role.OWNER, "Everything, including closing the organisation."),
    (Role.ADMIN, "Everything but closing the organisation or handing it over."),
    (Role.DEVELOPER, "API keys and adapters; sees projects, usage and webhooks."),
    (Role.BILLING, "Balance, invoices and exports; sees projects and usage."),
    (Role.VIEWER, "Sees projects, keys, limits and usage; changes nothing."),
)


def grantable(own: frozenset[Permission]) -> list[tuple[str, str]]:
    """Return the roles that somebody may give, as choices of a form."""
    return [
        (role.value, f"{role.value.capitalize()}: {sentence}")
        for role, sentence in ROLES
        if may_grant(own, role)
    ]


class MemberForm(PageForm):
    role = forms.ChoiceField(widget=forms.RadioSelect)
    gets_alerts = forms.BooleanField(
        label="E-mail alerts",
        required=False,
        help_text="About limits, balance and invoices, where the role may see them.",
    )

    def __init__(self, *args: Any, own: frozenset[Permission], **more: Any) -> None:
        super().__init__(*args, **more)
        self.fields["role"].choices = grantable(own)  # type: ignore[attr-defined]


class RemovalForm(NameTyped):
    field_order = ("revoke_keys", "confirm_name")

    revoke_keys = forms.BooleanField(
        label="Revoke the API keys that they made",
        required=False,
        help_text="Otherwise these keys keep working.",
    )

    def __init__(self, *args: Any, member: Membership, **more: Any) -> None:
        super().__init__(*args, name=member.user.email, **more)
        self.keys = keys_made_by(member)
        if not self.keys.exists():
            del self.fields["revoke_keys"]


class MembersPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW_PEOPLE}
    template_name = "dashboard/members/list.html"
    section = "members"

    def get(self, request: HttpRequest) -> HttpResponse:
        page = page_of(request, lambda cursor: list_members(limit=ROWS, cursor=cursor))
        context = {
            "page": page,
            "pending": list_pending(limit=_PENDING),
            "roles": ROLES,
            **self.write_access(Permission.WRITE_PEOPLE),
        }
        return self.show(context, fragment="list")


class MemberPage(TenantPage):
    """One member. Whoever may change them finds a form."""

    permissions: ClassVar = {"GET": Permission.VIEW_PEOPLE, "POST": Permission.WRITE_PEOPLE}
    template_name = "dashboard/members/one.html"
    section = "members"

    def get(self, request: HttpRequest, member_id: uuid.UUID) -> HttpResponse:
        member = member_of(member_id)
        initial = {"role": member.role, "gets_alerts": member.gets_alerts}
        return self.show(self._context(member, self._form(initial=initial)))

    def post(self, request: HttpRequest, member_id: uuid.UUID) -> HttpResponse:
        member, form = member_of(member_id), self._form(request.POST)
        if not form.is_valid() or not form.perform(lambda: self._change(member, form)):
            return self.show(self._context(member_of(member_id), form), fragment="form", status=422)
        messages.success(request, f"{member.user.email} was saved.")
        return self.go_to(reverse("dashboard:members", args=[self.tenant.id]))

    def _change(self, member: Membership, form: MemberForm) -> Membership:
        by = self.access.permissions
        change_role(member, Role(form.cleaned_data["role"]), by=by)
        return set_alerts(member, form.cleaned_data["gets_alerts"], by=by)

    def _form(self, *args: Any, **more: Any) -> MemberForm:
        return MemberForm(*args, own=self.access.permissions, **more)

    def _context(self, member: Membership, form: MemberForm) -> dict[str, Any]:
        able = self.write_access(Permission.WRITE_PEOPLE)
        is_below = may_grant(self.access.permissions, Role(member.role))
        may_change = able["may_write"] and is_below
        may_transfer = self.access.may_change(Permission.TRANSFER) and member.role != Role.OWNER
        return {
            "member": member,
            "form": form,
            "cancel": reverse("dashboard:members", args=[self.tenant.id]),
            "may_change": may_change,
            "may_transfer": may_transfer,
            **able,
        }


class RemoveMemberPage(TenantPage):
    """Asks first: which keys outlast the member, or end with them."""

    permissions: ClassVar = {"GET": Permission.WRITE_PEOPLE, "POST": Permission.WRITE_PEOPLE}
    template_name = "dashboard/members/remove.html"
    section = "members"

    def get(self, request: HttpRequest, member_id: uuid.UUID) -> HttpResponse:
        member = member_of(member_id)
        return self.show(self._context(member, RemovalForm(member=member)))

    def post(self, request: HttpRequest, member_id: uuid.UUID) -> HttpResponse:
        member = member_of(member_id)
        email = member.user.email
        form = RemovalForm(request.POST, member=member)
        if not form.is_valid() or not form.perform(lambda: self._remove(member, form)):
            return self.show(self._context(member, form), fragment="form", status=422)
        if member.user_id == self.access.user.id:
            return self.go_to(reverse("dashboard:organisations"))
        messages.success(request, f"{email} was removed.")
        return self.go_to(reverse("dashboard:members", args=[self.tenant.id]))

    def _remove(self, member: Membership, form: RemovalForm) -> bool:
        revoke_keys = form.cleaned_data.get("revoke_keys", False)
        remove(member, by=self.access.permissions, revoke_keys=revoke_keys)
        return True

    def _context(self, member: Membership, form: RemovalForm) -> dict[str, Any]:
        return {
            "member": member,
            "form": form,
            "keys": form.keys[:_KEYS],
            "key_count": form.keys.count(),
            "cancel": reverse("dashboard:member", args=[self.tenant.id, member.id]),
        }


def member_of(member_id: uuid.UUID) -> Membership:
    """Return a member with their user. Raises `Membership.DoesNotExist`."""
    return Membership.objects.select_related("user").get(id=member_id)


def own_membership(page: TenantPage) -> Membership:
    return Membership.objects.select_related("user").get(user=page.access.user)
