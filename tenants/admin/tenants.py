"""Tenants and their projects: suspend, resume, change the tier, close."""

from collections.abc import Callable
from typing import Any, ClassVar, Final

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import Count, IntegerField, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from unfold.admin import TabularInline
from unfold.contrib.filters.admin import (
    AutocompleteSelectFilter,
    ChoicesDropdownFilter,
    RelatedDropdownFilter,
)
from unfold.decorators import action, display
from unfold.forms import PaginationInlineFormSet
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextInputWidget

from tenants.access.projects import check_smaller_model
from tenants.admin import by_verbs
from tenants.admin.bookings import BooksMoney
from tenants.admin.impersonation import ActsAsMember
from tenants.admin.limits import QuotaValueForm
from tenants.admin.new_tenant import MadeWhole
from tenants.admin.people import MembershipForm, check_may_all_go
from tenants.admin.storage import storage_text
from tenants.errors import TenantsError
from tenants.models import Cap, Membership, Project, Quota, Tenant, Tier, check_cap_in_form
from tenants.offboarding.closing import close_tenant
from tenants.operator_admin import NeverDeleted, OperatorAdmin
from tenants.verbs import verb


class ProjectForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Project
        # The pages name theirs; a reference to a tenant's record asks for a scope here.
        fields = ("on_saturation", "smaller_model")

    def clean(self) -> None:
        """Keep the rules that every door keeps."""
        super().clean()
        tenant = self.cleaned_data.get("tenant")
        tenant_id = self.instance.tenant_id if tenant is None else tenant.pk
        if tenant_id is not None and {"on_saturation", "smaller_model"} <= self.cleaned_data.keys():
            check_smaller_model(
                tenant_id,
                on_saturation=self.cleaned_data["on_saturation"],
                smaller_model=self.cleaned_data["smaller_model"],
                is_new_choice="smaller_model" in self.changed_data,
            )


class ProjectPageForm(ProjectForm):
    def clean(self) -> None:
        """Keep the tier's cap; several in the page of a tenant are counted together."""
        super().clean()
        tenant = self.cleaned_data.get("tenant")
        if tenant is not None and self.instance._state.adding:
            check_cap_in_form(tenant.pk, Cap.PROJECTS)


_NAMES_SHOWN: Final = 5


class CappedFormSet(PaginationInlineFormSet):  # type: ignore[misc]
    """Rows of a tenant, of which its tier caps the number."""

    cap: ClassVar[Cap]

    def clean(self) -> None:
        super().clean()
        if self.instance._state.adding:
            return
        new = [form for form in self.extra_forms if form.has_changed()]
        adding = len([form for form in new if form not in self.deleted_forms])
        if adding:
            check_cap_in_form(self.instance.pk, self.cap, adding=adding)


class ProjectFormSet(CappedFormSet):
    cap = Cap.PROJECTS


class MembershipFormSet(CappedFormSet):
    cap = Cap.MEMBERS

    def clean(self) -> None:
        """Keep the tenant an owner, whoever is deleted or demoted together."""
        super().clean()
        changed = [form for form in self.initial_forms if "role" in form.changed_data]
        check_may_all_go(form.instance for form in [*changed, *self.deleted_forms])


class QuotaFormSet(CappedFormSet):
    cap = Cap.QUOTAS


class ProjectInline(TabularInline):  # type: ignore[misc]
    model = Project
    form = ProjectForm
    formset = ProjectFormSet
    extra = 0
    per_page = 20
    ordering = ["name"]
    fields = ["name", "on_saturation", "smaller_model"]
    show_change_link = True
    tab = True


class MembershipInline(TabularInline):  # type: ignore[misc]
    model = Membership
    form = MembershipForm
    formset = MembershipFormSet
    extra = 0
    per_page = 20
    ordering = ["user__email"]
    fields = ["user", "role"]
    autocomplete_fields = ["user"]
    tab = True


class QuotaInline(TabularInline):  # type: ignore[misc]
    """Show the operator's quotas of the whole tenant; the quotas' page has those of its members, of
    projects and of keys, too."""

    model = Quota
    form = QuotaValueForm
    formset = QuotaFormSet
    extra = 0
    fields = ["limit", "value", "is_hard"]
    tab = True

    def get_queryset(self, request: HttpRequest) -> QuerySet[Quota]:
        quotas: QuerySet[Quota] = super().get_queryset(request)
        return quotas.filter(project=None, api_key=None, is_own=False)


class TierForm(forms.Form):
    tier = forms.ModelChoiceField(Tier.objects.none(), widget=UnfoldAdminSelectWidget())

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        tier: Any = self.fields["tier"]
        tier.queryset = Tier.objects.all()


class NameForm(forms.Form):
    name = forms.CharField(
        label="Type the tenant's name to confirm",
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}),
    )

    def __init__(self, *args: Any, tenant: Tenant, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tenant = tenant

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if name != self._tenant.name:
            raise ValidationError("This is not the tenant's name.", code="wrong_name")
        return name


@admin.register(Tenant)
class TenantAdmin(ActsAsMember, BooksMoney, MadeWhole, NeverDeleted):
    change_form_outer_before_template = "admin/tenants/overview.html"
    list_display = ["name", "tier", "state", "project_count", "created_at"]
    list_filter = [("tier", RelatedDropdownFilter), "is_suspended"]
    search_fields = ["name", "id__startswith"]
    list_select_related = ["tier"]
    readonly_fields = ["id", "slug", "state", "storage", "created_at", "closed_at"]
    fieldsets = [
        (None, {"fields": ["name", "tier", "state", "storage"]}),
        ("Details", {"fields": ["id", "slug", "created_at", "closed_at"], "classes": ["collapse"]}),
    ]
    inlines = [ProjectInline, MembershipInline, QuotaInline]
    actions = ["suspend", "resume", "move_to_tier"]
    actions_detail: ClassVar = [
        "act_as_member",
        "suspend_one",
        "resume_one",
        "move_one",
        "close_one",
    ]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Tenant]:
        tenants: QuerySet[Tenant] = super().get_queryset(request)
        # Counted for the rows of a page; a join would count for all.
        projects = Project.objects.filter(tenant=OuterRef("pk")).order_by().values("tenant")
        number = Subquery(projects.annotate(number=Count("pk")).values("number"))
        return tenants.annotate(project_count=Coalesce(number, 0, output_field=IntegerField()))

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        is_closed = isinstance(obj, Tenant) and obj.is_closed
        return not is_closed and bool(super().has_change_permission(request, obj))

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[Any]:
        tenant = Tenant.objects.filter(pk=object_id).first()
        if tenant is None or tenant.is_closed:
            return []
        unfit = "suspend_one" if tenant.is_suspended else "resume_one"
        actions = super().get_actions_detail(request, object_id)
        return [action for action in actions if not action.action_name.endswith(unfit)]

    @admin.display(description="projects", ordering="project_count")
    def project_count(self, tenant: Any) -> int:
        return int(tenant.project_count)

    @display(
        description="state",
        ordering="is_suspended",
        label={"active": "success", "suspended": "warning", "closed": "danger"},
    )
    def state(self, tenant: Tenant) -> str:
        if tenant.is_closed:
            return "closed"
        return "suspended" if tenant.is_suspended else "active"

    @admin.display(description="stored")
    def storage(self, tenant: Tenant) -> str:
        return storage_text(tenant)

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        by_verbs.save_formset(formset)

    # From the list ------------------------------------------------------------------------------

    @admin.action(permissions=["change"], description="Suspend the selected tenants")
    def suspend(self, request: HttpRequest, tenants: QuerySet[Tenant]) -> HttpResponse | None:
        active = tenants.filter(is_suspended=False, closed_at=None)
        if not self.is_sure(request):
            return self.ask_first_of_list(
                request,
                title="Suspend tenants",
                text=f"{_named(active)}. {verb('tenants suspend').ends}",
                button="Suspend",
                is_final=True,
            )
        messages.success(request, f"{_tenants(_each(active, Tenant.suspend))} suspended.")
        return None

    @admin.action(permissions=["change"], description="Resume the selected tenants")
    def resume(self, request: HttpRequest, tenants: QuerySet[Tenant]) -> None:
        suspended = tenants.filter(is_suspended=True, closed_at=None)
        messages.success(request, f"{_tenants(_each(suspended, Tenant.resume))} resumed.")

    @admin.action(permissions=["change"], description="Change the tier of the selected tenants…")
    def move_to_tier(self, request: HttpRequest, tenants: QuerySet[Tenant]) -> HttpResponse | None:
        movable = tenants.filter(closed_at=None)
        form = TierForm(request.POST if self.is_sure(request) else None)
        if form.is_valid():
            tier = form.cleaned_data["tier"]
            count = _each(movable.exclude(tier=tier), lambda tenant: tenant.move_to(tier))
            messages.success(request, f"{_tenants(count)} moved to {tier}.")
            return None
        return self.ask_first_of_list(
            request,
            title="Change tier",
            text=f"{_named(movable)}. {verb('tenants tier').ends}",
            button="Change tier",
            form=form,
        )

    # From a tenant's page -----------------------------------------------------------------------

    @action(description="Suspend", url_path="suspend", permissions=["change"], icon="pause")
    def suspend_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        tenant = get_object_or_404(Tenant, pk=object_id)
        if self.is_sure(request):
            return self._do(request, tenant, tenant.suspend, "suspended")
        return self.ask_first(
            request,
            title=f"Suspend {tenant.name}",
            text=verb("tenants suspend").ends,
            button="Suspend",
        )

    @action(description="Resume", url_path="resume", permissions=["change"], icon="play_arrow")
    def resume_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        tenant = get_object_or_404(Tenant, pk=object_id)
        if self.is_sure(request):
            return self._do(request, tenant, tenant.resume, "resumed")
        return self.ask_first(
            request,
            title=f"Resume {tenant.name}",
            text=verb("tenants resume").ends,
            button="Resume",
        )

    @action(description="Change tier", url_path="move", permissions=["change"], icon="swap_horiz")
    def move_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        tenant = get_object_or_404(Tenant, pk=object_id)
        form = TierForm(request.POST if self.is_sure(request) else None)
        if form.is_valid():
            tier = form.cleaned_data["tier"]
            return self._do(request, tenant, lambda: tenant.move_to(tier), f"moved to {tier}")
        return self.ask_first(
            request,
            title=f"Change the tier of {tenant.name}",
            text=f"The current tier is {tenant.tier}. {verb('tenants tier').ends}",
            button="Change tier",
            form=form,
        )

    @action(description="Close", url_path="close", permissions=["change"], icon="delete_forever")
    def close_one(self, request: HttpRequest, object_id: str) -> HttpResponse:
        tenant = get_object_or_404(Tenant, pk=object_id)
        form = NameForm(request.POST if self.is_sure(request) else None, tenant=tenant)
        if form.is_valid():
            return self._do(request, tenant, lambda: close_tenant(tenant), "closed")
        return self.ask_first(
            request,
            title=f"Close {tenant.name}",
            text=verb("tenants close").ends,
            button="Close permanently",
            form=form,
            is_final=True,
        )

    def _do(self, request: HttpRequest, tenant: Tenant, work: Any, done: str) -> HttpResponse:
        try:
            work()
        except ValidationError as error:
            messages.error(request, " ".join(error.messages))
        except TenantsError as refusal:
            messages.error(request, refusal.message)
        else:
            self.log_change(request, tenant, f"{done.capitalize()}.")
            messages.success(request, f"{tenant.name} was {done}.")
        return self.back_to(tenant)


def _each(tenants: QuerySet[Tenant], work: Callable[[Tenant], None]) -> int:
    """Do this with all of them as they are now; return with how many."""
    locked = Tenant.objects.select_for_update(of=("self",), no_key=True)
    chosen = list(locked.filter(pk__in=tenants.values("pk")).order_by("pk"))
    for tenant in chosen:
        work(tenant)
    return len(chosen)


def _named(tenants: QuerySet[Tenant]) -> str:
    """Return how many these are, and the first of their names."""
    names = list(tenants.order_by("name").values_list("name", flat=True)[: _NAMES_SHOWN + 1])
    shown = ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
    return f"{_tenants(tenants.count())} ({shown})"


def _tenants(count: int) -> str:
    return "1 tenant" if count == 1 else f"{count} tenants"


@admin.register(Project)
class ProjectAdmin(OperatorAdmin):
    form = ProjectPageForm
    list_display = ["name", "tenant", "on_saturation", "smaller_model", "created_at"]
    list_filter = [
        ("tenant", AutocompleteSelectFilter),
        ("on_saturation", ChoicesDropdownFilter),
    ]
    search_fields = ["name", "tenant__name", "id__startswith"]
    list_select_related = ["tenant"]
    autocomplete_fields = ["tenant"]
    readonly_fields = ["id", "usage_labels", "created_at"]
    fieldsets = [
        (None, {"fields": ["tenant", "name"]}),
        ("When a model is saturated", {"fields": ["on_saturation", "smaller_model"]}),
        ("Details", {"fields": ["id", "usage_labels", "created_at"], "classes": ["collapse"]}),
    ]
    ordering = ["-created_at"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Project]:
        projects: QuerySet[Project] = super().get_queryset(request)
        return projects.select_related("tenant")

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        # Another tenant would get its keys and usage.
        return [*self.readonly_fields, "tenant"] if obj else list(self.readonly_fields)

    def save_model(self, request: HttpRequest, obj: Project, form: Any, change: bool) -> None:
        by_verbs.save(obj, form.changed_data)

    def delete_model(self, request: HttpRequest, obj: Project) -> None:
        by_verbs.delete(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Project]) -> None:
        for project in queryset:
            by_verbs.delete(project)
