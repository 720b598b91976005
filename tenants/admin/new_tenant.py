"""A tenant as operators make one: with its first project, how it pays and, where they wish, an
owner's invitation and a first key, all on one form."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from unfold.widgets import (
    UnfoldAdminEmailInputWidget,
    UnfoldAdminTextInputWidget,
    UnfoldBooleanSwitchWidget,
)

from tenants.access.api_keys import issue_api_key
from tenants.access.invitations.inviting import check_can_invite, invite
from tenants.access.projects import add_tenant
from tenants.admin import by_verbs
from tenants.admin.shown_keys import ShowsKeys
from tenants.errors import TenantsError
from tenants.models import Project, Tenant
from tenants.permissions import Role


class NewTenantForm(forms.ModelForm):  # type: ignore[type-arg]
    project = forms.CharField(
        label="First project",
        max_length=Project._meta.get_field("name").max_length,
        initial="default",
        widget=UnfoldAdminTextInputWidget(),
    )
    owner = forms.EmailField(
        label="Owner's email address",
        required=False,
        help_text="Gets an invitation to own the organisation, good for seven days.",
        widget=UnfoldAdminEmailInputWidget(attrs={"autocomplete": "off"}),
    )
    makes_key = forms.BooleanField(
        label="Make a first API key",
        required=False,
        help_text="Of the first project, with the scope inference; it is shown once, next.",
        widget=UnfoldBooleanSwitchWidget(),
    )

    class Meta:
        model = Tenant
        fields = ("name", "tier", "billing_mode")

    def clean_owner(self) -> str:
        """Refuse an address that no invitation can be sent to."""
        address: str = self.cleaned_data["owner"]
        if address:
            try:
                check_can_invite()
            except TenantsError as refusal:
                raise forms.ValidationError(refusal.message, code=refusal.code) from None
        return address


class MadeWhole(ShowsKeys):
    """Adds tenants by that form."""

    add_fieldsets = (
        (None, {"fields": ["name", "tier", "billing_mode", "project"]}),
        ("To begin with", {"fields": ["owner", "makes_key"]}),
    )

    def get_form(
        self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any
    ) -> Any:
        form = kwargs.pop("form", None) or (self.form if obj else NewTenantForm)
        return super().get_form(request, obj, change, form=form, **kwargs)

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        return super().get_fieldsets(request, obj) if obj else self.add_fieldsets

    def get_inlines(self, request: HttpRequest, obj: Any) -> Any:
        return super().get_inlines(request, obj) if obj else []

    def save_model(self, request: HttpRequest, obj: Tenant, form: Any, change: bool) -> None:
        if change:
            by_verbs.save(obj, form.changed_data)
            return
        asked = form.cleaned_data
        project = add_tenant(obj, project=asked["project"])
        if asked["makes_key"]:
            obj.first_key = issue_api_key(project, name="first")  # type: ignore[attr-defined]  # for the next page
        if asked["owner"]:
            try:
                invite(obj, email=asked["owner"], role=Role.OWNER, by=None)
            except TenantsError as refusal:
                messages.error(request, f"No invitation was sent: {refusal.message}")
            else:
                messages.success(request, f"{asked['owner']} is invited to own {obj.name}.")

    def response_add(
        self, request: HttpRequest, obj: Tenant, post_url_continue: str | None = None
    ) -> HttpResponse:
        issued = getattr(obj, "first_key", None)
        if issued is None:
            answer: HttpResponse = super().response_add(request, obj, post_url_continue)
            return answer
        return self.show_once(request, issued.record, issued.key)
