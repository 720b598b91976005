"""Which model may answer instead of one that is saturated. Every door that sets it comes through
here: the admin, the commands, the API."""

from django.core.exceptions import ValidationError

from gpu_workers.protocol.policy import OnSaturation
from tenants.models import Project
from tenants.policy.rows import unseen_models


def check_smaller_model(project: Project, *, is_new_choice: bool) -> None:
    """Raises `ValidationError` that names the field. A model that the tenant could see when it was
    chosen stays: where it may no longer be called, the gateway refuses and says so."""
    is_used = project.on_saturation == OnSaturation.SMALLER_MODEL
    if is_used and not project.smaller_model:
        raise ValidationError({"smaller_model": "Say which model answers instead."})
    if project.smaller_model and not is_used:
        raise ValidationError(
            {
                "smaller_model": "A smaller model is used only where on_saturation is "
                f"'{OnSaturation.SMALLER_MODEL}', got {project.on_saturation!r}; "
                "choose that, or name no model."
            }
        )
    if is_used and is_new_choice and unseen_models(project.tenant_id, [project.smaller_model]):
        raise ValidationError(
            {"smaller_model": f"There is no model {project.smaller_model!r} for this tenant."}
        )
