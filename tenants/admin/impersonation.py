"""The operators' page on which one starts to act as a member of a tenant."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from unfold.decorators import action
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from tenants.access.impersonation import LONGEST, may_act, start
from tenants.errors import TenantsError
from tenants.isolation.audit_actor import address_of
from tenants.models import Tenant, User
from tenants.operator_admin import OperatorAdmin
from tenants.permissions import ACTING_ROLES, Role
from tenants.verbs import verb


class ActForm(forms.Form):
    role = forms.ChoiceField(
        choices=[(role.value, role.value) for role in ACTING_ROLES],
        initial=Role.VIEWER.value,
        widget=UnfoldAdminSelectWidget(),
    )
    reason = forms.CharField(
        min_length=10,
        max_length=300,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
        help_text="The owners read it. Stored permanently; do not include personal data.",
    )


class ActsAsMember(OperatorAdmin):
    """The action of a tenant's page."""

    def has_act_permission(self, request: HttpRequest, _object_id: Any = None) -> bool:
        return isinstance(request.user, User) and may_act(request.session, request.user)

    @action(
        description="Act as a member",
        url_path="act",
        permissions=["act"],
        icon="supervisor_account",
    )
    def act_as_member(self, request: HttpRequest, object_id: str) -> HttpResponse:
        tenant = get_object_or_404(Tenant, pk=object_id)
        form = ActForm(request.POST if self.is_sure(request) else None)
        if form.is_valid():
            try:
                start(
                    request.session,
                    request.user,  # type: ignore[arg-type]  # has_act_permission
                    tenant,
                    role=Role(form.cleaned_data["role"]),
                    reason=form.cleaned_data["reason"],
                    address=address_of(request),
                )
            except TenantsError as refusal:
                messages.error(request, refusal.message)
                return self.back_to(tenant)
            return redirect("dashboard:overview", tenant.pk)
        minutes = int(LONGEST.total_seconds() / 60)
        return self.ask_first(
            request,
            title=f"Act as a member of {tenant.name}",
            text=f"For {minutes} minutes at most you see their pages in the role you choose, "
            "without secrets, and may change projects and the organisation's name. "
            f"{verb('tenants act').ends}",
            button="Act as a member",
            form=form,
        )
