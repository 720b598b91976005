"""Projects of a tenant: the list, a new one, one of them."""

import uuid
from typing import Any, ClassVar

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from control_plane.dashboard.fields import LabelNamesField
from control_plane.dashboard.forms import ChoiceWhereUsed, PageForm
from control_plane.dashboard.lists import ROWS, page_of
from control_plane.dashboard.page import TenantPage
from gpu_workers.protocol.policy import OnSaturation
from inference.models.catalog import models_visible_to
from tenants.access.projects import add_project, change_project, list_projects
from tenants.models import Project, Tenant
from tenants.permissions import Permission


class ProjectForm(PageForm):
    """What a tenant says of a project. The smaller model is asked for where it is used."""

    unique_field = "name"

    name = forms.CharField(
        max_length=200,
        help_text="For example web or nightly-jobs. Keys, limits and usage belong to a project.",
    )
    on_saturation = forms.ChoiceField(
        label="When a model is saturated",
        choices=[
            (OnSaturation.WAIT, "Wait: the request is queued, and its answer says so."),
            (OnSaturation.REFUSE, "Refuse: 429 at once, with Retry-After."),
            (OnSaturation.SMALLER_MODEL, "Use a smaller model, at that model's price."),
        ],
        initial=OnSaturation.WAIT,
        widget=forms.RadioSelect,
        help_text="Applies when the expected wait exceeds your tier's target for the first token.",
    )
    smaller_model = ChoiceWhereUsed(
        label="Smaller model", help_text="The model that answers instead."
    )

    usage_labels = LabelNamesField(
        label="Record usage by",
        help_text="Names with commas between: user, and up to three keys of requests' metadata, "
        "for example user, metadata.team. Their values stand in the request log and in reports; "
        "without a name nothing is recorded.",
    )

    def __init__(self, *args: Any, tenant: Tenant, current_model: str = "", **more: Any) -> None:
        super().__init__(*args, **more)
        names = [model.name for model in models_visible_to(tenant.id)]
        choices = [("", "Choose a model"), *((name, name) for name in names)]
        if current_model and current_model not in names:
            choices.append((current_model, f"{current_model} (no longer available)"))
        self.fields["smaller_model"].choices = choices  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        """Drop a model that the choice above has no use for: it was hidden by then."""
        cleaned = super().clean() or self.cleaned_data
        if cleaned.get("on_saturation") != OnSaturation.SMALLER_MODEL:
            cleaned["smaller_model"] = ""
        return cleaned


class ProjectsPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.VIEW}
    template_name = "dashboard/projects/list.html"
    section = "projects"

    def get(self, request: HttpRequest) -> HttpResponse:
        page = page_of(request, lambda cursor: list_projects(limit=ROWS, cursor=cursor))
        return self.show(
            {"page": page, **self.write_access(Permission.WRITE_PROJECTS)}, fragment="list"
        )


class NewProjectPage(TenantPage):
    permissions: ClassVar = {"GET": Permission.WRITE_PROJECTS, "POST": Permission.WRITE_PROJECTS}
    template_name = "dashboard/projects/new.html"
    section = "projects"

    def get(self, request: HttpRequest) -> HttpResponse:
        return self.show(
            {
                "form": ProjectForm(tenant=self.tenant),
                **self.write_access(Permission.WRITE_PROJECTS),
            }
        )

    def post(self, request: HttpRequest) -> HttpResponse:
        form = ProjectForm(request.POST, tenant=self.tenant)
        project = None
        if form.is_valid():
            project = form.perform(lambda: add_project(self.tenant, **form.cleaned_data))
        if project is None:
            return self.show(
                {"form": form, **self.write_access(Permission.WRITE_PROJECTS)},
                fragment="form",
                status=422,
            )
        messages.success(request, f"Project {project.name} was created.")
        return self.go_to(reverse("dashboard:projects", args=[self.tenant.id]))


class ProjectPage(TenantPage):
    """Everybody sees it; whoever may change it finds a form instead of a description."""

    permissions: ClassVar = {"GET": Permission.VIEW, "POST": Permission.WRITE_PROJECTS}
    template_name = "dashboard/projects/one.html"
    section = "projects"

    def get(self, request: HttpRequest, project_id: uuid.UUID) -> HttpResponse:
        project = Project.objects.get(id=project_id)
        initial = {
            "name": project.name,
            "on_saturation": project.on_saturation,
            "smaller_model": project.smaller_model,
            "usage_labels": project.usage_labels,
        }
        return self.show(self._context(project, self._form(project, initial=initial)))

    def post(self, request: HttpRequest, project_id: uuid.UUID) -> HttpResponse:
        project = Project.objects.get(id=project_id)
        stored = Project.objects.get(id=project_id)
        form = self._form(stored, request.POST)
        if not form.is_valid() or not form.perform(lambda: _changed(project, form.cleaned_data)):
            return self.show(self._context(stored, form), fragment="form", status=422)
        messages.success(request, f"Project {project.name} was saved.")
        return self.go_to(request.path)

    def _form(self, project: Project, *args: Any, **more: Any) -> ProjectForm:
        return ProjectForm(*args, tenant=self.tenant, current_model=project.smaller_model, **more)

    def _context(self, project: Project, form: ProjectForm) -> dict[str, Any]:
        return {"project": project, "form": form, **self.write_access(Permission.WRITE_PROJECTS)}


def _changed(project: Project, fields: dict[str, Any]) -> bool:
    change_project(project, **fields)
    return True
