"""The keys behind playgrounds: one for a member and a project, which nobody can present. By it the
project's limits, fairness, usage and revocation hold for what is tried out on the page too."""

from typing import Final

from django.db import IntegrityError, transaction

from gpu_workers.protocol.policy import Scope
from tenants.models import ApiKey, Cap, Membership, Project, check_cap

NAME: Final = "Playground"


def playground_key(project: Project, member: Membership) -> ApiKey:
    """Return the member's key in the project, made now where there is none that works. Whether they
    may make keys is the door's to check. Raises `CapReached`."""
    found = _of(project, member)
    if found is not None:
        return found
    check_cap(project.tenant_id, Cap.API_KEYS)
    record = ApiKey(project=project, tenant_id=project.tenant_id, created_by_id=member.user_id)
    record.set_no_key()
    record.name, record.scopes = NAME, [Scope.INFERENCE.value]
    try:
        with transaction.atomic():
            record.save(force_insert=True)
    except IntegrityError:  # another of their pages was first
        return ApiKey.objects.get(**_which(project, member))
    return record


def _of(project: Project, member: Membership) -> ApiKey | None:
    return ApiKey.objects.filter(**_which(project, member)).first()


def _which(project: Project, member: Membership) -> dict[str, object]:
    return {
        "project": project,
        "created_by_id": member.user_id,
        "is_playground": True,
        "revoked_at": None,
    }
