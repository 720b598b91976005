"""Operators' pages for people, tenants, tiers and keys."""

from typing import Any

from django.contrib import admin, messages
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.db.models import Count, Model, QuerySet
from django.forms import ModelForm
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from unfold.admin import TabularInline
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from tenants import api_keys
from tenants.models import ApiKey, Membership, PolicyVersion, Project, Tenant, Tier, User
from tenants.operator_admin import OperatorAdmin, ReadOnlyAdmin

admin.site.unregister(Group)  # roles are Membership's; an unused page only misleads


class MembershipInline(TabularInline):  # type: ignore[misc]
    model = Membership
    extra = 0
    autocomplete_fields = ["user", "tenant"]


class ProjectInline(TabularInline):  # type: ignore[misc]
    model = Project
    extra = 0
    fields = ["name"]
    show_change_link = True


@admin.register(User)
class UserAdmin(DjangoUserAdmin, OperatorAdmin):  # type: ignore[type-arg]
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ["email", "name", "is_staff", "is_active", "last_login"]
    list_filter = ["is_staff", "is_active", "memberships__tenant"]
    search_fields = ["email", "name"]
    ordering = ["email"]
    readonly_fields = ["last_login", "created_at"]
    filter_horizontal = ()
    fieldsets = [
        (None, {"fields": ["email", "name", "password"]}),
        ("May", {"fields": ["is_active", "is_staff", "is_superuser"]}),
        ("Seen", {"fields": ["last_login", "created_at"]}),
    ]
    add_fieldsets = [
        (None, {"fields": ["email", "name", "usable_password", "password1", "password2"]}),
        ("May", {"fields": ["is_staff", "is_superuser"]}),
    ]
    inlines = [MembershipInline]

    # Whoever may change accounts can make one that may do everything, or take one over.

    def has_add_permission(self, request: HttpRequest) -> bool:
        return _is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return _is_superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return _is_superuser(request)


def _is_superuser(request: HttpRequest) -> bool:
    return request.user.is_active and request.user.is_superuser


@admin.register(Tier)
class TierAdmin(OperatorAdmin):
    list_display = [
        "name",
        "priority",
        "weight",
        "requests_per_minute",
        "max_concurrent_requests",
        "ttft_target_ms",
        "max_queue_seconds",
        "default_max_output_tokens",
    ]
    search_fields = ["name"]


@admin.register(Tenant)
class TenantAdmin(OperatorAdmin):
    list_display = ["name", "tier", "is_suspended", "project_count", "created_at"]
    list_filter = ["tier", "is_suspended"]
    search_fields = ["name", "id"]
    list_select_related = ["tier"]
    readonly_fields = ["id", "created_at"]
    inlines = [ProjectInline, MembershipInline]
    actions = ["suspend", "resume"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tenant]:
        tenants: QuerySet[Tenant] = super().get_queryset(request)
        return tenants.annotate(project_count=Count("projects"))

    @admin.display(description="projects", ordering="project_count")
    def project_count(self, tenant: Any) -> int:
        return int(tenant.project_count)

    @admin.action(permissions=["change"], description="Suspend the selected tenants")
    def suspend(self, request: HttpRequest, tenants: QuerySet[Tenant]) -> None:
        count = tenants.filter(is_suspended=False).update(is_suspended=True)
        messages.success(request, f"{count} tenants suspended.")

    @admin.action(permissions=["change"], description="Resume the selected tenants")
    def resume(self, request: HttpRequest, tenants: QuerySet[Tenant]) -> None:
        count = tenants.filter(is_suspended=True).update(is_suspended=False)
        messages.success(request, f"{count} tenants resumed.")


@admin.register(Project)
class ProjectAdmin(OperatorAdmin):
    list_display = ["name", "tenant", "created_at"]
    list_filter = ["tenant"]
    search_fields = ["name", "tenant__name", "id"]
    list_select_related = ["tenant"]
    autocomplete_fields = ["tenant"]
    readonly_fields = ["id", "created_at"]

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        # Keys and usage would change hands with it.
        return [*self.readonly_fields, "tenant"] if obj else list(self.readonly_fields)


@admin.register(ApiKey)
class ApiKeyAdmin(OperatorAdmin):
    """Made here and shown once; afterwards revoked, never changed or deleted."""

    list_display = ["masked", "name", "tenant", "project_name", "created_at", "revoked_at"]
    list_filter = [("revoked_at", admin.EmptyFieldListFilter), "project__tenant"]
    search_fields = ["public_id", "name", "last_four", "project__tenant__name", "project__name"]
    list_select_related = ["project__tenant"]
    autocomplete_fields = ["project"]
    date_hierarchy = "created_at"
    actions = ["revoke"]

    def get_fields(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        if obj is None:
            return ["project", "name"]
        return ["id", "masked", "project", "name", "created_at", "revoked_at"]

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        return ["id", "masked", "project", "created_at", "revoked_at"] if obj else []

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def save_model(
        self, request: HttpRequest, obj: ApiKey, form: "ModelForm[ApiKey]", change: bool
    ) -> None:
        if not change:
            obj.tenant_id = obj.project.tenant_id
            obj.shown_once = obj.take(api_keys.generate())
        super().save_model(request, obj, form, change)

    def response_add(
        self, request: HttpRequest, obj: ApiKey, post_url_continue: str | None = None
    ) -> HttpResponse:
        """The one page that ever holds the key: not in a message, which would be stored."""
        context = {
            **self.admin_site.each_context(request),
            "title": "API key",
            "opts": self.opts,
            "record": obj,
            "key": obj.shown_once,
        }
        # The admin marks all its answers as not to be stored.
        return TemplateResponse(request, "admin/tenants/apikey/issued.html", context)

    @admin.display(description="tenant", ordering="project__tenant__name")
    def tenant(self, key: ApiKey) -> str:
        return key.project.tenant.name

    @admin.display(description="project", ordering="project__name")
    def project_name(self, key: ApiKey) -> str:
        return key.project.name

    @admin.action(permissions=["change"], description="Revoke the selected API keys")
    def revoke(self, request: HttpRequest, selected: QuerySet[ApiKey]) -> None:
        active = list(selected.filter(revoked_at=None))
        for key in active:
            key.revoke()
            self.log_change(request, key, "Revoked.")
        messages.success(request, f"{len(active)} API keys revoked.")


@admin.register(PolicyVersion)
class PolicyVersionAdmin(ReadOnlyAdmin):
    list_display = ["__str__", "version", "epoch"]
