"""User accounts and their memberships of tenants."""

from collections.abc import Iterable
from typing import Any

import allauth.account.admin
import allauth.mfa.admin
import allauth.socialaccount.admin
import allauth.usersessions.admin  # noqa: F401 - all four, for what is taken out below
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.socialaccount.models import SocialAccount, SocialApp, SocialToken
from allauth.usersessions.models import UserSession
from django import forms
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from unfold.admin import TabularInline
from unfold.contrib.filters.admin import AutocompleteSelectFilter, ChoicesDropdownFilter
from unfold.forms import (
    AdminPasswordChangeForm,
    PaginationInlineFormSet,
    UserChangeForm,
    UserCreationForm,
)

from tenants.access.people import check_may_go, delete_account, lock_owners
from tenants.admin import by_verbs
from tenants.errors import Conflict
from tenants.models import Cap, Invitation, Membership, User, check_cap_in_form
from tenants.operator_admin import OperatorAdmin, ReadOnlyAdmin

# Roles are in Membership, the address in User; sessions and codes are their owner's; providers are
# the tenants'.
admin.site.unregister([Group, EmailAddress, UserSession, Authenticator])
admin.site.unregister([SocialAccount, SocialApp, SocialToken])


class MembershipForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Membership
        fields = ("role",)  # the pages add the others

    def clean(self) -> None:
        """Keep the tier's cap, and the tenant an owner."""
        super().clean()
        tenant = self.cleaned_data.get("tenant")
        if tenant is not None and "tenant" in self.changed_data:
            check_cap_in_form(tenant.pk, Cap.MEMBERS)
        if not self.instance._state.adding and "role" in self.changed_data:
            check_may_all_go([self.instance])


class MembershipsOfUser(PaginationInlineFormSet):  # type: ignore[misc]
    def clean(self) -> None:
        super().clean()
        check_may_all_go(form.instance for form in self.deleted_forms)


def check_may_all_go(memberships: Iterable[Membership]) -> None:
    """Check as the verbs do that come after it, for a form. Raises `ValidationError`."""
    going = list(Membership.objects.filter(pk__in=[each.pk for each in memberships]))
    for membership in going:
        lock_owners(membership.tenant_id)
        try:
            check_may_go(membership, others=going)
        except Conflict as conflict:
            raise ValidationError(conflict.message, code=conflict.code) from None


def _needed(memberships: Iterable[Membership]) -> list[str]:
    """Return, of members who are to go, those whose tenants would lose what they must keep."""
    going = list(memberships)
    found = []
    for membership in going:
        try:
            check_may_go(membership, others=going)
        except Conflict as conflict:
            found.append(f"{membership.user.email} in {membership.tenant.name}: {conflict.message}")
    return found


class MembershipOfUser(TabularInline):  # type: ignore[misc]
    model = Membership
    form = MembershipForm
    formset = MembershipsOfUser
    extra = 0
    per_page = 20
    ordering = ["tenant__name"]
    fields = ["tenant", "role"]
    autocomplete_fields = ["tenant"]


@admin.register(User)
class UserAdmin(DjangoUserAdmin, OperatorAdmin):  # type: ignore[type-arg,misc]
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ["email", "name", "is_staff", "is_active", "last_login"]
    list_filter = ["is_staff", "is_active", ("memberships__tenant", AutocompleteSelectFilter)]
    search_fields = ["email", "name"]
    ordering = ["email"]
    readonly_fields = ["last_login", "created_at"]
    filter_horizontal = ()
    fieldsets = [
        (None, {"fields": ["email", "name", "password"]}),
        ("Permissions", {"fields": ["is_active", "is_staff", "is_superuser"]}),
        ("Important dates", {"fields": ["last_login", "created_at"]}),
    ]
    add_fieldsets = [
        (None, {"fields": ["email", "name", "usable_password", "password1", "password2"]}),
        ("Permissions", {"fields": ["is_staff", "is_superuser"]}),
    ]
    inlines = [MembershipOfUser]

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Protect the owners whom tenants need."""
        *found, protected = super().get_deleted_objects(objs, request)
        members = Membership.objects.filter(user__in=objs).select_related("user", "tenant")
        return *found, [*protected, *_needed(members)]

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        by_verbs.save_formset(formset)

    def delete_model(self, request: HttpRequest, obj: User) -> None:
        delete_account(obj)

    def delete_queryset(self, request: HttpRequest, queryset: Iterable[User]) -> None:
        for user in queryset:
            delete_account(user)

    # Whoever may change accounts can create a superuser, or take one over.

    def has_add_permission(self, request: HttpRequest) -> bool:
        return _is_superuser(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _is_superuser(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return _is_superuser(request)


def _is_superuser(request: HttpRequest) -> bool:
    return request.user.is_active and request.user.is_superuser


@admin.register(Membership)
class MembershipAdmin(OperatorAdmin):
    form = MembershipForm
    fields = ["tenant", "user", "role", "gets_alerts", "created_at"]
    list_display = ["user", "tenant", "role", "created_at"]
    list_filter = [
        ("role", ChoicesDropdownFilter),
        ("tenant", AutocompleteSelectFilter),
        ("user", AutocompleteSelectFilter),
    ]
    search_fields = ["user__email", "tenant__name"]
    list_select_related = ["user", "tenant"]
    autocomplete_fields = ["user", "tenant"]
    readonly_fields = ["created_at"]
    ordering = ["-created_at"]

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        # Another user or tenant is another membership.
        return ["user", "tenant", "created_at"] if obj else ["created_at"]

    def get_deleted_objects(self, objs: Any, request: HttpRequest) -> Any:
        """Protect the owners whom tenants need."""
        *found, protected = super().get_deleted_objects(objs, request)
        return *found, [*protected, *_needed(objs)]

    def save_model(self, request: HttpRequest, obj: Membership, form: Any, change: bool) -> None:
        by_verbs.save(obj, form.changed_data)

    def delete_model(self, request: HttpRequest, obj: Membership) -> None:
        by_verbs.delete(obj)

    def delete_queryset(self, request: HttpRequest, queryset: Iterable[Membership]) -> None:
        for membership in queryset:
            by_verbs.delete(membership)


@admin.register(Invitation)
class InvitationAdmin(ReadOnlyAdmin):
    """Sent from a tenant's pages and the API; operators see what became of them."""

    list_display = ["email", "tenant", "role", "state", "sent_at", "expires_at"]
    list_filter = [
        ("outcome", ChoicesDropdownFilter),
        ("tenant", AutocompleteSelectFilter),
    ]
    search_fields = ["email", "tenant__name"]
    list_select_related = ["tenant"]
    fields = readonly_fields = [
        "email",
        "tenant",
        "role",
        "state",
        "invited_by",
        "api_key",
        "created_at",
        "sent_at",
        "expires_at",
        "ended_at",
    ]
    ordering = ["-created_at"]

    @admin.display(description="state")
    def state(self, invitation: Invitation) -> str:
        return invitation.state.value
