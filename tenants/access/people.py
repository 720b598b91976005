"""Who belongs to a tenant and in which role. Call these inside the tenant's scope.

`by` is what the one who asks may do: nobody grants a role that may more than they may themselves,
and nobody changes somebody who has such a role. A tenant keeps an owner, whoever asks: operators
too, who call these in the scope of theirs.
"""

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from django.db.models import QuerySet
from django.utils import timezone

from tenants.access.break_glass import break_glass_owners, no_way_in
from tenants.errors import Conflict, NotPermitted
from tenants.isolation.audit_actor import Verb, audited_as
from tenants.isolation.scoping import tenant_scope, user_scope
from tenants.models import ApiKey, Cap, Membership, Tenant, User, check_cap
from tenants.pagination import NEWEST_FIRST, Order, Page, page
from tenants.permissions import ROLE_PERMISSIONS, Permission, Role, may_grant

_ORDER: Final = Order(name="memberships", fields=NEWEST_FIRST, is_descending=True)
# What an operator may, and whoever leaves: change any member.
OPERATOR: Final = ROLE_PERMISSIONS[Role.OWNER]
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


def set_member(
    tenant: Tenant, user: User, role: Role, *, by: frozenset[Permission]
) -> tuple[Membership, bool]:
    """Make the user a member, or give a member this role; return the membership, and whether it is
    new. Raises as `change_role` does, and `CapReached`."""
    membership = Membership.objects.filter(tenant=tenant, user=user).first()
    if membership is not None:
        return change_role(membership, role, by=by), False
    check_grant(role, by)
    check_cap(tenant.pk, Cap.MEMBERS)
    return Membership.objects.create(tenant=tenant, user=user, role=role), True


def change_role(membership: Membership, role: Role, *, by: frozenset[Permission]) -> Membership:
    """Change a member's role. Raises `NotPermitted`, and `Conflict` if the tenant would be left
    without an owner, or one that asks for single sign-on without a way in beside it."""
    check_grant(role, by)
    membership = _locked(membership, by)
    if role is not Role.OWNER:
        check_may_go(membership)
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


def keys_made_by(membership: Membership) -> QuerySet[ApiKey]:
    """Return the member's keys that are not revoked, the newest first: they outlast the
    membership, but for those of playgrounds, which end with it."""
    made = ApiKey.objects.filter(
        tenant_id=membership.tenant_id,
        created_by_id=membership.user_id,
        revoked_at=None,
        is_playground=False,
    )
    return made.select_related("project").order_by("-created_at", "-id")


def remove(membership: Membership, *, by: frozenset[Permission], revoke_keys: bool = False) -> None:
    """Remove a member, and revoke the keys they made if asked; the user remains, with their other
    tenants. Raises as `change_role` does."""
    membership = _locked(membership, by)
    check_may_go(membership)
    if revoke_keys:
        with audited_as(Verb.REVOKED):
            keys_made_by(membership).update(revoked_at=timezone.now())
    membership.delete()


def delete_account(user: User) -> None:
    """Delete a user with all memberships, as an operator does. Raises as `change_role` does."""
    user = User.objects.select_for_update().get(pk=user.pk)  # against new ones, and sessions
    for membership in user.memberships.all():
        remove(membership, by=OPERATOR)
    user.delete()


def lock_owners(tenant_id: uuid.UUID) -> None:
    """Lock the tenant's owners until the transaction ends, before any other member is: all in one
    order, so that of two who leave at once the second finds itself alone."""
    owners = Membership.objects.filter(tenant_id=tenant_id, role=Role.OWNER)
    list(owners.select_for_update().order_by("id"))


def leave(membership: Membership) -> None:
    """Take oneself out of the tenant. Raises `Conflict` for the only owner."""
    membership = _locked(membership, by=OPERATOR)
    check_may_go(membership)
    with audited_as(Verb.LEFT):
        membership.delete()


def transfer_ownership(to: Membership, *, by: Membership) -> Membership:
    """Make another member an owner and the owner who asks an admin; return the new owner's
    membership. Raises `NotPermitted` for whoever is no owner, `Conflict` for oneself and for
    somebody who is an owner."""
    to = _locked(to, by=OPERATOR)
    by.refresh_from_db()
    if by.role != Role.OWNER:
        raise NotPermitted(f"Only an owner hands ownership over; your role here is {by.role}.")
    if to.id == by.id or to.role == Role.OWNER:
        whom = "You are" if to.id == by.id else f"{to.user.email} is"
        raise Conflict(
            f"{whom} an owner already; name another member.",
            code="already_owner",
            param="member_id",
        )
    with audited_as(Verb.TRANSFERRED):
        to.role = Role.OWNER
        to.save(update_fields=["role"])
        check_may_go(by)
        by.role = Role.ADMIN
        by.save(update_fields=["role"])
    return to


def check_grant(role: Role, by: frozenset[Permission]) -> None:
    """Raises `NotPermitted` for a role that may more than `by` may."""
    if not may_grant(by, role):
        raise NotPermitted(
            f"The role {role} may do more than you may; nobody grants a role above their own.",
            param="role",
        )


def _locked(membership: Membership, by: frozenset[Permission]) -> Membership:
    """Lock the tenant's owners and the membership until the transaction ends, and return it as it
    is now. Raises `NotPermitted` if `by` may not change it."""
    lock_owners(membership.tenant_id)
    membership = (
        Membership.objects.select_for_update(of=("self",))
        .select_related("user")
        .get(id=membership.id)
    )
    if not may_grant(by, Role(membership.role)):
        raise NotPermitted(f"Only an owner may change a member who is {membership.role}.")
    return membership


def check_may_go(membership: Membership, *, others: Iterable[Membership] = ()) -> None:
    """Raise `Conflict` where the tenant would be left without an owner, or without a way in beside
    its single sign-on, if this one went or had a lesser role, with these others."""
    if membership.role != Role.OWNER:
        return
    going = {membership.id: membership.user_id, **{each.id: each.user_id for each in others}}
    owners = Membership.objects.filter(tenant_id=membership.tenant_id, role=Role.OWNER)
    if not owners.exclude(id__in=going).exists():
        raise Conflict(
            "This is the organisation's only owner; make somebody else an owner first.",
            code="last_owner",
            param="role",
        )
    demanding = Tenant.objects.filter(pk=membership.tenant_id, demands_sign_on=True).exists()
    ways = {owner.pk for owner in break_glass_owners(membership.tenant_id)} if demanding else set()
    if membership.user_id in ways and ways <= set(going.values()):
        raise no_way_in(param="role")
