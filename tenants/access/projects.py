"""Projects as every door makes and changes them: the admin, the commands, the API. Also which model
may answer instead of one that is saturated."""

import uuid
from typing import Final

from django.core.exceptions import ValidationError

from gpu_workers.protocol.policy import OnSaturation
from tenants.models import Project, Tenant
from tenants.pagination import NEWEST_FIRST, Order, Page, page
from tenants.policy.rows import unavailable_models

PROJECTS_ORDER: Final = Order(name="projects", fields=NEWEST_FIRST, is_descending=True)


def list_projects(*, limit: int, cursor: str | None = None) -> Page[Project]:
    """Return a page of the open scope's projects, the newest first. Raises `BadCursor`."""
    return page(Project.objects.all(), PROJECTS_ORDER, limit=limit, cursor=cursor)


def add_project(tenant: Tenant, **fields: str) -> Project:
    """Create a project. Raises as `change_project` does."""
    project = Project(tenant=tenant)
    change_project(project, **fields)
    return project


def change_project(project: Project, **fields: str) -> None:
    """Set the name, and what becomes of requests at saturation. Another choice than the smaller
    model forgets which it was. Raises `ValidationError`."""
    if fields.get("on_saturation", OnSaturation.SMALLER_MODEL) != OnSaturation.SMALLER_MODEL:
        fields.setdefault("smaller_model", "")
    for name, value in fields.items():
        setattr(project, name, value.strip())
    stored = Project.objects.filter(pk=project.pk).values_list("smaller_model", flat=True)
    errors: dict[str, list[ValidationError]] = {}
    try:
        check_smaller_model(
            project.tenant_id,
            on_saturation=project.on_saturation,
            smaller_model=project.smaller_model,
            is_new_choice=list(stored) != [project.smaller_model],
        )
    except ValidationError as error:
        error.update_error_dict(errors)
    try:
        project.full_clean(exclude=errors)
    except ValidationError as error:
        error.update_error_dict(errors)
    if errors:
        raise ValidationError(errors)
    project.save()


def check_smaller_model(
    tenant_id: uuid.UUID, *, on_saturation: str, smaller_model: str, is_new_choice: bool
) -> None:
    """Check the project's choice of a smaller model; raises `ValidationError` that names the field.
    A model that the tenant could see when it was chosen stays: where it may no longer be called,
    the gateway refuses and says so."""
    is_used = on_saturation == OnSaturation.SMALLER_MODEL
    if is_used and not smaller_model:
        raise _bad_model("Say which model answers instead.", code="required")
    if smaller_model and not is_used:
        raise _bad_model(
            f"A smaller model is used only where on_saturation is '{OnSaturation.SMALLER_MODEL}', "
            f"got {on_saturation!r}; choose that, or name no model.",
            code="not_used",
        )
    if is_used and is_new_choice and unavailable_models(tenant_id, [smaller_model]):
        raise _bad_model(
            f"There is no model {smaller_model!r} for this tenant.", code="unknown_model"
        )


def _bad_model(message: str, *, code: str) -> ValidationError:
    return ValidationError({"smaller_model": ValidationError(message, code=code)})
