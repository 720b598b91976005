"""Who gets into a tenant that asks for single sign-on while its provider is down: an owner with a
password and a second factor. One of them remains."""

import uuid

from tenants.access.second_factor import has_second_factor
from tenants.errors import Conflict
from tenants.isolation.scoping import tenant_scope, user_scope
from tenants.models import Membership, Tenant, User
from tenants.permissions import Role


def break_glass_owners(tenant_id: uuid.UUID) -> list[User]:
    """Return the owners who could enter without the provider, inside the tenant's scope."""
    owners = Membership.objects.filter(tenant_id=tenant_id, role=Role.OWNER, user__is_active=True)
    return [each.user for each in owners.select_related("user") if _gets_in(each.user)]


def no_way_in(*, param: str | None = None) -> Conflict:
    return Conflict(
        "This organisation asks for single sign-on, and an owner with a password and two-step "
        "sign-in must remain as the way in when the provider is down: set up two-step sign-in for "
        "another owner first.",
        code="no_way_in",
        param=param,
    )


def is_only_way_in(user: User) -> bool:
    """Return whether a tenant asks for single sign-on and nobody but the user could enter it
    without the provider. Needs no scope."""
    with user_scope(user.pk):
        owned = list(Membership.objects.filter(role=Role.OWNER).values_list("tenant_id", flat=True))
    return any(_lets_nobody_else_in(tenant_id, user) for tenant_id in owned)


def _lets_nobody_else_in(tenant_id: uuid.UUID, user: User) -> bool:
    with tenant_scope(tenant_id):
        asks = Tenant.objects.filter(pk=tenant_id, demands_sign_on=True, closed_at=None).exists()
        return asks and break_glass_owners(tenant_id) == [user]


def _gets_in(owner: User) -> bool:
    return owner.has_usable_password() and has_second_factor(owner)
