"""Who reads the documentation: the model that examples name, and what their variables stand for."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError
from django.http import HttpRequest

from control_plane.dashboard.page import entered
from control_plane.management_api.openapi.examples import EXAMPLE_PROJECT_ID
from control_plane.web.pages import signed_in
from gpu_workers.protocol.policy import ModelPolicy
from inference.models.catalog import models_visible_to, public_models
from inference.openai_api.operations import EXAMPLE_MODEL
from tenants.access.entry_policy import EntryRefused
from tenants.access.people import tenants_of
from tenants.access.projects import list_projects
from tenants.isolation.audit_actor import address_of
from tenants.models import Project, Tenant, User
from tenants.permissions import Permission

# Organisations of somebody, until one lets them in.
_TRIED: Final = 5


@dataclass(frozen=True, kw_only=True)
class Reader:
    """`organisation` is the first of a signed-in person's that lets their session in, `project` its
    newest; a stranger has neither."""

    model: str
    organisation: Tenant | None = None
    project: Project | None = None

    @property
    def project_id(self) -> str:
        return str(self.project.id) if self.project else EXAMPLE_PROJECT_ID

    @property
    def variables(self) -> str:
        """Return lines of a shell with their ids, by the names that these have in the examples."""
        ids = (("TENANT_ID", self.organisation), ("PROJECT_ID", self.project))
        return "\n".join(f"export {name}={record.id}" for name, record in ids if record)


def reader_of(request: HttpRequest) -> Reader:
    """Return the reader; without a database, or a model that they may use, examples say where its
    name belongs."""
    try:
        return _member(request) or Reader(model=_first(public_models()))
    except DatabaseError:
        return Reader(model=EXAMPLE_MODEL)


def _member(request: HttpRequest) -> Reader | None:
    user = signed_in(request)
    if user is None:
        return None
    readers = (
        _reader_in(request, user, each.tenant) for each in tenants_of(user, limit=_TRIED).rows
    )
    return next((each for each in readers if each), None)


def _reader_in(request: HttpRequest, user: User, tenant: Tenant) -> Reader | None:
    try:
        with entered(request, user, tenant.id, address_of(request)) as access:
            projects = list_projects(limit=1).rows if access.may(Permission.VIEW) else []
            model = _first(models_visible_to(tenant.id))
    except (EntryRefused, ObjectDoesNotExist):
        return None
    return Reader(model=model, organisation=tenant, project=next(iter(projects), None))


def _first(models: Sequence[ModelPolicy]) -> str:
    return models[0].name if models else EXAMPLE_MODEL
