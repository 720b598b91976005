"""API keys: created here and shown once; then narrowed, rotated or revoked, never deleted."""

from datetime import timedelta
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone
from unfold.contrib.filters.admin import AutocompleteSelectFilter
from unfold.decorators import action, display
from unfold.widgets import UnfoldAdminSelectWidget

from gpu_workers.protocol.policy import Scope
from tenants.access.api_keys import (
    change_api_key,
    checked_fields,
    issue_api_key,
    revoke_api_key,
    rotate_api_key,
)
from tenants.admin.shown_keys import ShowsKeys
from tenants.models import ApiKey, Cap, check_cap_in_form
from tenants.operator_admin import NeverDeleted
from tenants.operator_forms import CheckboxesField, LinesField
from tenants.verbs import verb

_SCOPES = {
    Scope.INFERENCE: "inference: call models",
    Scope.USAGE_READ: "usage:read: read the tenant's usage",
    Scope.ADAPTERS_WRITE: "adapters:write: upload and remove adapters",
    Scope.KEYS_WRITE: "keys:write: manage keys with no more access than this one",
    Scope.ADMIN: "admin: all of the above, and the tenant's projects, quotas and members",
}
_OVERLAPS = {
    0: "none: the old key stops working immediately",
    1: "1 hour",
    24: "24 hours",
    168: "7 days",
}


class ApiKeyForm(forms.ModelForm):  # type: ignore[type-arg]
    scopes = CheckboxesField(
        choices=[(scope.value, label) for scope, label in _SCOPES.items()],
        initial=[Scope.INFERENCE.value],
    )
    allowed_networks = LinesField(
        placeholder="192.0.2.0/24",
        help_text="CIDR blocks that may use the key, one per line. Leave blank for any address.",
    )
    allowed_models = LinesField(
        help_text="One per line. Leave blank for every model that the tenant may use."
    )
    allowed_adapters = LinesField(
        help_text="One per line. Leave blank for all of the tenant's adapters."
    )

    class Meta:
        model = ApiKey
        # The page adds the others; a reference to a tenant's record asks for a scope here.
        fields = ("scopes", "allowed_networks", "allowed_models", "allowed_adapters")

    def clean(self) -> None:
        """Keep the rules that every door keeps."""
        super().clean()
        is_new = self.instance._state.adding
        project = self.cleaned_data.get("project") if is_new else self.instance.project
        if project is not None:
            names = [name for name in self.cleaned_data if is_new or name in self.changed_data]
            new = {name: self.cleaned_data[name] for name in names}
            self.cleaned_data.update(checked_fields(project.tenant_id, new))
            if is_new:
                check_cap_in_form(project.tenant_id, Cap.API_KEYS)


class OverlapForm(forms.Form):
    overlap_hours = forms.TypedChoiceField(
        label="Overlap",
        help_text="How long the old key stays valid.",
        choices=list(_OVERLAPS.items()),
        coerce=int,
        initial=24,
        widget=UnfoldAdminSelectWidget(),
    )


@admin.register(ApiKey)
class ApiKeyAdmin(ShowsKeys, NeverDeleted):
    form = ApiKeyForm
    list_display = [
        "masked",
        "name",
        "tenant_name",
        "project_name",
        "state",
        "scope_names",
        "last_used_at",
        "created_at",
    ]
    list_filter = [
        ("revoked_at", admin.EmptyFieldListFilter),
        ("tenant", AutocompleteSelectFilter),
        ("project", AutocompleteSelectFilter),
    ]
    search_fields = ["public_id__startswith", "name", "last_four__exact", "tenant__name"]
    list_select_related = ["tenant", "project"]
    autocomplete_fields = ["project"]
    actions = ["revoke"]
    actions_detail: ClassVar = ["rotate_one", "revoke_one"]
    readonly_fields = [
        "id",
        "masked",
        "tenant",
        "state",
        "created_by",
        "created_at",
        "rotated_at",
        "previous_expires_at",
        "last_used_at",
        "revoked_at",
    ]
    _permissions: ClassVar = (
        "Permissions",
        {
            "fields": [
                "scopes",
                "expires_at",
                "allowed_networks",
                "allowed_models",
                "allowed_adapters",
            ]
        },
    )
    _lifecycle = ["last_used_at", "created_at", "created_by", "rotated_at", "previous_expires_at"]
    _of_new: ClassVar = ["name", *_permissions[1]["fields"]]
    add_fieldsets = [(None, {"fields": ["project", "name"]}), _permissions]
    fieldsets = [
        (None, {"fields": ["masked", "name", "tenant", "project", "state"]}),
        _permissions,
        ("Lifecycle", {"fields": [*_lifecycle, "revoked_at", "id"]}),
    ]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        return [*self.readonly_fields, "project"] if obj else list(self.readonly_fields)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_fixed = isinstance(obj, ApiKey) and (obj.is_revoked or obj.is_playground)
        return not is_fixed and bool(super().has_change_permission(request, obj))

    def save_model(self, request: HttpRequest, obj: ApiKey, form: Any, change: bool) -> None:
        if change:
            change_api_key(obj, **{name: form.cleaned_data[name] for name in form.changed_data})
            return
        fields = {name: form.cleaned_data[name] for name in self._of_new}
        issued = issue_api_key(obj.project, operator_id=request.user.pk, **fields)
        obj.pk, obj._state.adding, obj.shown_once = issued.record.pk, False, issued.key
        obj.refresh_from_db()

    def response_add(
        self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None
    ) -> HttpResponse:
        return self.show_once(request, obj, obj.shown_once)

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        if ApiKey.objects.filter(pk=object_id, revoked_at=None).exists():
            actions: list[Any] = super().get_actions_detail(request, object_id)
            return actions
        return []

    # Columns ------------------------------------------------------------------------------------

    @admin.display(description="key", ordering="public_id")
    def masked(self, key: ApiKey) -> str:
        return key.masked

    @admin.display(description="tenant", ordering="tenant__name")
    def tenant_name(self, key: ApiKey) -> str:
        return key.tenant.name

    @admin.display(description="project", ordering="project__name")
    def project_name(self, key: ApiKey) -> str:
        return key.project.name

    @admin.display(description="scopes")
    def scope_names(self, key: ApiKey) -> str:
        return ", ".join(key.scopes)

    @display(
        description="state", label={"active": "success", "expired": "warning", "revoked": "danger"}
    )
    def state(self, key: ApiKey) -> str:
        if key.is_revoked:
            return "revoked"
        return "expired" if key.expires_at and key.expires_at <= timezone.now() else "active"

    # Verbs --------------------------------------------------------------------------------------

    @admin.action(permissions=["change"], description="Revoke the selected API keys")
    def revoke(self, request: HttpRequest, selected: QuerySet[ApiKey]) -> HttpResponse | None:
        active = selected.filter(revoked_at=None)
        if not self.is_sure(request):
            tenants = active.order_by().values("tenant").distinct().count()
            of = "one tenant" if tenants == 1 else f"{tenants} tenants"
            return self.ask_first_of_list(
                request,
                title="Revoke API keys",
                text=f"{_keys(active.count())} of {of}. {verb('keys revoke').ends}",
                button="Revoke",
                is_final=True,
            )
        chosen = list(active)
        for key in chosen:
            revoke_api_key(key)
        messages.success(request, f"{_keys(len(chosen))} revoked.")
        return None

    @action(description="Rotate", url_path="rotate", permissions=["change"], icon="autorenew")
    def rotate_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        record = get_object_or_404(ApiKey.objects.select_related("project"), pk=object_id)
        form = OverlapForm(request.POST if self.is_sure(request) else None)
        if record.is_revoked:
            messages.error(request, "This API key is revoked. Create a new one instead.")
            return self.back_to(record)
        if form.is_valid():
            overlap = timedelta(hours=form.cleaned_data["overlap_hours"])
            try:
                key = rotate_api_key(record, overlap=overlap)
            except ValidationError as error:
                messages.error(request, " ".join(error.messages))
                return self.back_to(record)
            self.log_change(request, record, "Rotated.")
            return self.show_once(request, record, key)
        return self.ask_first(
            request,
            title=f"Rotate {record.masked}",
            text=verb("keys rotate").ends,
            button="Rotate",
            form=form,
        )

    @action(description="Revoke", url_path="revoke", permissions=["change"], icon="block")
    def revoke_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        record = get_object_or_404(ApiKey, pk=object_id)
        if self.is_sure(request):
            revoke_api_key(record)
            self.log_change(request, record, "Revoked.")
            messages.success(request, f"{record.masked} was revoked.")
            return self.back_to(record)
        return self.ask_first(
            request,
            title=f"Revoke {record.masked}",
            text=verb("keys revoke").ends,
            button="Revoke",
            is_final=True,
        )


def _keys(count: int) -> str:
    return "1 API key" if count == 1 else f"{count} API keys"
