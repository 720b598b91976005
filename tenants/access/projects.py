"""Projects as every door makes and changes them: the admin, the commands, the API. Also which model
may answer instead of one that is saturated."""

import uuid
from collections.abc import Sequence
from typing import Any, Final

from django.core.exceptions import ValidationError

from gpu_workers.protocol.labels import MAX_LABELS, USER, is_label_name
from gpu_workers.protocol.policy import OnSaturation
from tenants.models import Cap, Project, Tenant, check_cap
from tenants.pagination import NEWEST_FIRST, Order, Page, page
from tenants.policy.rows import unavailable_models

PROJECTS_ORDER: Final = Order(name="projects", fields=NEWEST_FIRST, is_descending=True)


def list_projects(*, limit: int, cursor: str | None = None) -> Page[Project]:
    """Return a page of the open scope's projects, the newest first. Raises `BadCursor`."""
    return page(Project.objects.all(), PROJECTS_ORDER, limit=limit, cursor=cursor)


def recorded_labels() -> list[str]:
    """Return the labels that any project of the open scope has usage recorded by, in order."""
    chosen = Project.objects.exclude(usage_labels=[]).values_list("usage_labels", flat=True)
    return sorted({name for names in chosen for name in names})


def add_tenant(tenant: Tenant, *, project: str = "default") -> Project:
    """Store a new tenant, with its first project, in the caller's transaction. Raises as
    `add_project` does."""
    tenant.full_clean()
    tenant.save()
    return add_project(tenant, name=project)


def add_project(tenant: Tenant, **fields: Any) -> Project:
    """Create a project. Raises as `change_project` does, and `CapReached`."""
    project = Project(tenant=tenant)
    _set(project, fields)
    check_cap(tenant.id, Cap.PROJECTS)
    project.save()
    return project


def change_project(project: Project, **fields: Any) -> None:
    """Set the name, what becomes of requests at saturation, and the labels that usage is recorded
    by. Another choice than the smaller model forgets which it was. Raises `ValidationError`."""
    _set(project, fields)
    project.save()


def delete_project(project: Project) -> None:
    """Delete a project that nothing refers to, as an operator does. Raises `ProtectedError`."""
    project.delete()


def _set(project: Project, fields: dict[str, Any]) -> None:
    """Set the fields on the record. Raises `ValidationError` that names every bad one."""
    if fields.get("on_saturation", OnSaturation.SMALLER_MODEL) != OnSaturation.SMALLER_MODEL:
        fields.setdefault("smaller_model", "")
    for name, value in fields.items():
        setattr(project, name, value.strip() if isinstance(value, str) else value)
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
        check_label_names(project.usage_labels)
    except ValidationError as error:
        error.update_error_dict(errors)
    try:
        project.full_clean(exclude=errors)
    except ValidationError as error:
        error.update_error_dict(errors)
    if errors:
        raise ValidationError(errors)


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


def check_label_names(names: Sequence[str]) -> None:
    """Check the labels that a project has usage recorded by. Raises `ValidationError`."""
    wrong = next((name for name in names if not is_label_name(name)), None)
    if wrong is not None:
        raise _bad_labels(
            f"expected 'user' or 'metadata.' and a key of up to 64 letters, digits and _ . -, got "
            f"{wrong[:80]!r}."
        )
    if len(set(names)) < len(names):
        raise _bad_labels("names one twice.")
    if sum(name != USER for name in names) > MAX_LABELS - 1:
        raise _bad_labels(f"takes 'user' and up to {MAX_LABELS - 1} keys of metadata.")


def _bad_labels(message: str) -> ValidationError:
    return ValidationError({"usage_labels": ValidationError(message, code="bad_labels")})


def _bad_model(message: str, *, code: str) -> ValidationError:
    return ValidationError({"smaller_model": ValidationError(message, code=code)})
