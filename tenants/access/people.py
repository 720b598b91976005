"""Who belongs to a tenant and in which role. Call these inside the tenant's scope.

`by` is what the one who asks may do: nobody grants a role that may more than they may themselves,
and nobody changes somebody who has such a role. A tenant keeps an owner.
"""

import uuid
from dataclasses import dataclass
from typing import Final

from django.contrib.auth.hashers import make_password
from django.core.validators import validate_email

from tenants.errors import Conflict, NotPermitted
from tenants.isolation.scoping import tenant_scope, user_scope
from tenants.models import Membership, Tenant, User
from tenants.pagination import NEWEST_FIRST, Order, Page, page
from tenants.permissions import Permission, Role, may_grant

_ORDER: Final = Order(name="memberships", fields=NEWEST_FIRST, is_descending=True)
MEMBERS_ORDER: Final = Order(name="members", fields=NEWEST_FIRST, is_descending=True)


@dataclass(frozen=True, kw_only=True)
class TenantRole:
    """A tenant that a user belongs to, and as what."""

    tenant: Tenant
    role: Role


def tenants_of(user: User, *, limit: int, cursor: str | None = None) -> Page[TenantRole]:
    """Return a page of the user's tenants without the closed ones, so that a page may be short.
    Needs no scope. Raises `BadCursor`."""
    with user_scope(user.id):
        memberships = page(Membership.objects.all(), _ORDER, limit=limit, cursor=cursor)
    roles = []
    for membership in memberships.rows:
        # Each behind its own walls: a user's are around their memberships alone.
        with tenant_scope(membership.tenant_id):
            tenant = Tenant.objects.filter(id=membership.tenant_id, closed_at=None).first()
        if tenant is not None:
            roles.append(TenantRole(tenant=tenant, role=Role(membership.role)))
    return Page(rows=roles, next_cursor=memberships.next_cursor)


def membership_of(user: User, tenant_id: uuid.UUID) -> Membership | None:
    """Return the user's membership of the tenant, None without one. Needs no scope: a user's own
    memberships can be read before a tenant is chosen."""
    with user_scope(user.id):
        return Membership.objects.filter(tenant_id=tenant_id).first()


def list_members(*, limit: int, cursor: str | None = None) -> Page[Membership]:
    """Return a page of the open scope's members with their users, the newest first. Raises
    `BadCursor`."""
    rows = Membership.objects.select_related("user")
    return page(rows, MEMBERS_ORDER, limit=limit, cursor=cursor)


def invite(
    tenant_id: uuid.UUID, *, email: str, role: Role, by: frozenset[Permission]
) -> Membership:
    """Add whoever has that email address, or a new user without a password, to the tenant. Raises
    `ValidationError` for a bad address, `NotPermitted` for a role that `by` may not grant, and
    `Conflict` for somebody who is a member already."""
    validate_email(email)
    _check_grant(role, by)
    address = email.strip().lower()
    user, _ = User.objects.get_or_create(email=address, defaults={"password": make_password(None)})
    membership, is_new = Membership.objects.get_or_create(
        tenant_id=tenant_id, user=user, defaults={"role": role}
    )
    if not is_new:
        raise Conflict(f"{address} is a member already; change the role instead.", param="email")
    return membership


def change_role(membership: Membership, role: Role, *, by: frozenset[Permission]) -> Membership:
    """Change a member's role. Raises `NotPermitted`, and `Conflict` if the tenant would be left
    without an owner."""
    _check_grant(role, by)
    membership = _locked(membership, by)
    if role is not Role.OWNER:
        _check_owner_remains(membership)
    membership.role = role
    membership.save(update_fields=["role"])
    return membership


def set_alerts(
    membership: Membership, gets_alerts: bool, *, by: frozenset[Permission]
) -> Membership:
    """Set whether the member gets the alerts of their role by e-mail. Raises `NotPermitted`."""
    membership = _locked(membership, by)
    membership.gets_alerts = gets_alerts
    membership.save(update_fields=["gets_alerts"])
    return membership


def remove(membership: Membership, *, by: frozenset[Permission]) -> None:
    """Remove a member; the user remains, with their other tenants. Raises as `change_role` does."""
    membership = _locked(membership, by)
    _check_owner_remains(membership)
    membership.delete()


def lock_owners() -> None:
    """Lock the tenant's owners until the transaction ends, before any other member is: all in one
    order, so that of two who leave at once the second finds itself alone."""
    list(Membership.objects.select_for_update().filter(role=Role.OWNER).order_by("id"))


def _locked(membership: Membership, by: frozenset[Permission]) -> Membership:
    """Lock the tenant's owners and the membership until the transaction ends, and return it as it
    is now. Raises `NotPermitted` if `by` may not change it."""
    lock_owners()
    membership = (
        Membership.objects.select_for_update(of=("self",))
        .select_related("user")
        .get(id=membership.id)
    )
    if not may_grant(by, Role(membership.role)):
        raise NotPermitted(f"Only an owner may change a member who is {membership.role}.")
    return membership


def _check_grant(role: Role, by: frozenset[Permission]) -> None:
    if not may_grant(by, role):
        raise NotPermitted(
            f"The role {role} may do more than you may; nobody grants a role above their own.",
            param="role",
        )


def _check_owner_remains(membership: Membership) -> None:
    if membership.role != Role.OWNER:
        return
    if not Membership.objects.filter(role=Role.OWNER).exclude(id=membership.id).exists():
        raise Conflict(
            "This is the organisation's only owner; make somebody else an owner first.",
            param="role",
        )
