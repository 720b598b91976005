"""How much of everything a tenant may have: caps of its tier, checked where one more is made.

They bound what one tenant costs all others: rows that its lists, its policy and its pages are made
of. What is there already stays, whatever becomes of the tier.
"""

import uuid
from enum import StrEnum
from typing import Any, Final

from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.utils import timezone

from tenants.errors import NotPermitted
from tenants.models.api_key import ApiKey
from tenants.models.invitation import Invitation
from tenants.models.quota import Quota
from tenants.models.tenant import Membership, Project, Tenant


class Cap(StrEnum):
    """What a tier caps, as the field `max_<value>` of the tier says."""

    PROJECTS = "projects"
    API_KEYS = "api_keys"
    MEMBERS = "members"
    QUOTAS = "quotas"
    WEBHOOKS = "webhooks"


CAP_WORDS: Final = {
    Cap.PROJECTS: "projects",
    Cap.API_KEYS: "API keys",
    Cap.MEMBERS: "members and open invitations",
    Cap.QUOTAS: "quotas",
    Cap.WEBHOOKS: "webhooks",
}
_REMEDIES: Final = {
    Cap.PROJECTS: "Use one that you have",
    Cap.API_KEYS: "Revoke one that nobody uses",
    Cap.MEMBERS: "Remove a member or withdraw an invitation",
    Cap.QUOTAS: "Remove one",
    Cap.WEBHOOKS: "Remove one",
}


class CapReached(NotPermitted):
    """The tier allows no more of them."""

    def __init__(self, cap: Cap, *, tier: str, most: int, present: int) -> None:
        super().__init__(
            f"Tier {tier} allows {most} {CAP_WORDS[cap]}, and there are {present}. "
            f"{_REMEDIES[cap]}, or ask the operator of the service for another tier.",
            code=f"too_many_{cap}",
            params={"most": most, "present": present},
        )


def check_cap(
    tenant_id: uuid.UUID, cap: Cap, *, adding: int = 1, present: "QuerySet[Any] | None" = None
) -> None:
    """Raise `CapReached` where the tenant may not have so many more. Locks the tenant until the
    transaction ends: of two at the same time the second counts the first. Call it before anything
    is written. `present` are those that are there, of what stands on a floor above."""
    tenants = Tenant.objects.select_for_update(no_key=True, of=("self",)).select_related("tier")
    tenant = tenants.get(pk=tenant_id)
    most = getattr(tenant.tier, f"max_{cap}")
    count = _count(tenant, cap) if present is None else present.count()
    if count + adding > most:
        raise CapReached(cap, tier=tenant.tier.name, most=most, present=count)


def check_cap_in_form(tenant_id: uuid.UUID, cap: Cap, *, adding: int = 1) -> None:
    """Check as `check_cap` does, for a form. Raises `ValidationError`."""
    try:
        check_cap(tenant_id, cap, adding=adding)
    except CapReached as error:
        raise ValidationError(error.message, code=error.code) from None


def _count(tenant: Tenant, cap: Cap) -> int:
    match cap:
        case Cap.PROJECTS:
            return Project.objects.filter(tenant=tenant).count()
        case Cap.API_KEYS:
            # Expired ones too: a new expiry brings them back.
            return ApiKey.objects.filter(tenant=tenant, revoked_at=None).count()
        case Cap.MEMBERS:
            members = Membership.objects.filter(tenant=tenant).count()
            is_open = Q(outcome="", expires_at__gt=timezone.now())
            return members + Invitation.objects.filter(is_open, tenant=tenant).count()
        case Cap.QUOTAS:
            return Quota.objects.filter(tenant=tenant).count()
        case Cap.WEBHOOKS:
            raise TypeError("Webhooks are counted by whoever asks.")
