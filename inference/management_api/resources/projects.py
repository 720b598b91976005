"""Projects of a tenant: keys, quotas and usage belong to one."""

import uuid
from typing import Any, ClassVar, Final

from msgspec import UNSET, UnsetType
from rest_framework.response import Response

from gpu_workers.protocol.policy import OnSaturation
from inference.management_api.bodies import Fields, given_fields
from inference.management_api.lists import ListQuery, listed
from inference.management_api.view import TenantView
from tenants.access.projects import add_project, change_project
from tenants.models import Project
from tenants.pagination import NEWEST_FIRST, Order, page
from tenants.permissions import Permission

_ORDER: Final = Order(name="projects", fields=NEWEST_FIRST, is_descending=True)


class ProjectChange(Fields):
    """What is left out stays. `smaller_model` goes with that choice of `on_saturation` only."""

    name: str | UnsetType = UNSET
    on_saturation: OnSaturation | UnsetType = UNSET
    smaller_model: str | UnsetType | None = UNSET


class NewProject(ProjectChange, kw_only=True):
    name: str


class ProjectsView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW, "POST": Permission.WRITE_PROJECTS}
    parameters: ClassVar = {"GET": ListQuery}

    def get(self) -> Response:
        rows = Project.objects.all()
        found = page(rows, _ORDER, limit=self.query.limit, cursor=self.query.cursor)
        return listed(found, _rendered)

    def post(self) -> Response:
        project = add_project(self.tenant, **_given(self.body(NewProject)))
        return Response(_rendered(project), status=201)


class OneProjectView(TenantView):
    permissions: ClassVar = {"GET": Permission.VIEW, "PATCH": Permission.WRITE_PROJECTS}

    def get(self, project_id: uuid.UUID) -> Response:
        return Response(_rendered(Project.objects.get(id=project_id)))

    def patch(self, project_id: uuid.UUID) -> Response:
        project = Project.objects.get(id=project_id)
        change_project(project, **_given(self.body(ProjectChange)))
        return Response(_rendered(project))


def _given(fields: ProjectChange) -> dict[str, str]:
    return {name: value or "" for name, value in given_fields(fields).items()}


def _rendered(project: Project) -> dict[str, Any]:
    return {
        "object": "project",
        "id": project.id,
        "name": project.name,
        "on_saturation": project.on_saturation,
        "smaller_model": project.smaller_model or None,
        "created_at": project.created_at,
    }
