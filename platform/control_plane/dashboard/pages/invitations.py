"""Inviting people, and what can be done with an invitation that nobody answered yet."""

import uuid
from collections.abc import Callable
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from control_plane.dashboard.forms import PageForm
from control_plane.dashboard.page import TenantPage
from control_plane.dashboard.pages.members import grantable, own_membership
from tenants.access.invitations.inviting import invite, resend, withdraw
from tenants.access.sign_in import is_inviting_too_often
from tenants.errors import TenantsError
from tenants.models import Invitation
from tenants.permissions import Permission, Role

_TOO_OFTEN = "Too many invitations, or too many e-mails to this address. Try again in an hour."


class InvitationForm(PageForm):
    email = forms.EmailField(
        label="E-mail address",
        max_length=254,
        help_text="They join with this address alone, once they accept.",
        widget=forms.EmailInput(attrs={"autocomplete": "off"}),
    )
    role = forms.ChoiceField(initial=Role.DEVELOPER.value, widget=forms.RadioSelect)

    def __init__(self, *args: Any, own: frozenset[Permission], **more: Any) -> None:
        super().__init__(*args, **more)
        self.fields["role"].choices = grantable(own)  # type: ignore[attr-defined]


class _InvitingPage(TenantPage):
    section = "members"

    def members(self) -> HttpResponse:
        return self.go_to(reverse("dashboard:members", args=[self.tenant.id]))

    def is_too_often(self, email: str) -> bool:
        return is_inviting_too_often(self.request, self.tenant.id, email)


class InvitePage(_InvitingPage):
    permissions: ClassVar = {"GET": Permission.WRITE_PEOPLE, "POST": Permission.WRITE_PEOPLE}
    template_name = "dashboard/members/invite.html"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.show(self._context(InvitationForm(own=self.access.permissions)))

    def post(self, request: HttpRequest) -> HttpResponse:
        form = InvitationForm(request.POST, own=self.access.permissions)
        invitation = form.perform(lambda: self._invite(form)) if form.is_valid() else None
        if invitation is None:
            return self.show(self._context(form), fragment="form", status=422)
        messages.success(request, f"{invitation.email} was sent an invitation.")
        return self.members()

    def _context(self, form: InvitationForm) -> dict[str, Any]:
        return {"form": form, "cancel": reverse("dashboard:members", args=[self.tenant.id])}

    def _invite(self, form: InvitationForm) -> Invitation:
        email, role = form.cleaned_data["email"], Role(form.cleaned_data["role"])
        if self.is_too_often(email):
            raise forms.ValidationError(_TOO_OFTEN, code="too_many_attempts")
        return invite(self.tenant, email=email, role=role, by=own_membership(self))


class _AnswerPage(_InvitingPage):
    """One button of the list: no page of its own, what comes of it is said above the list."""

    http_method_names = ["post"]
    permissions: ClassVar = {"POST": Permission.WRITE_PEOPLE}

    def act(self, verb: Callable[[Invitation], str], invitation_id: uuid.UUID) -> HttpResponse:
        try:
            done = verb(Invitation.objects.get(id=invitation_id))
        except TenantsError as refusal:
            messages.error(self.request, refusal.message)
        else:
            messages.success(self.request, done)
        return self.members()


class ResendPage(_AnswerPage):
    def post(self, request: HttpRequest, invitation_id: uuid.UUID) -> HttpResponse:
        return self.act(self._resend, invitation_id)

    def _resend(self, invitation: Invitation) -> str:
        if self.is_too_often(invitation.email):
            raise TenantsError(_TOO_OFTEN, code="too_many_attempts")
        resend(invitation, by=own_membership(self))
        return f"{invitation.email} was sent a new link; those before it do not work any more."


class WithdrawPage(_AnswerPage):
    def post(self, request: HttpRequest, invitation_id: uuid.UUID) -> HttpResponse:
        return self.act(self._withdraw, invitation_id)

    def _withdraw(self, invitation: Invitation) -> str:
        withdraw(invitation, by=own_membership(self))
        return f"The invitation of {invitation.email} was withdrawn."
