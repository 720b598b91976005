"""A person inside one of their tenants, or an operator who acts as one: what they may do there, and
what the tenant's state forbids. All that they change bears their name in the audit log."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from tenants.access.entry_policy import check_entry, check_recent_proof
from tenants.access.session_proofs import AuthenticationMethods
from tenants.errors import NotPermitted
from tenants.isolation.audit_actor import audit_actor
from tenants.isolation.scoping import tenant_scope
from tenants.models import Membership, Tenant, User
from tenants.permissions import (
    ACTING_MAY,
    ACTING_MAY_CHANGE,
    ROLE_PERMISSIONS,
    Permission,
    Role,
    roles_with,
)

_NOT_WHILE_ACTING: Final = "Operators who act as a member cannot do this."


@dataclass(frozen=True, kw_only=True)
class MemberAccess:
    """`tenant` comes with its tier. Without a `membership` it is an operator who acts as a
    member: with less than the role may, and nothing that the session's `proofs` are asked for."""

    user: User
    tenant: Tenant
    role: Role
    membership: Membership | None
    proofs: AuthenticationMethods | None = None

    @property
    def is_acting(self) -> bool:
        return self.membership is None

    def as_member(self) -> Membership:
        """Return the membership, for what is done in a member's own name. Raises `NotPermitted` for
        an operator who acts."""
        if self.membership is None:
            raise NotPermitted(_NOT_WHILE_ACTING, code="not_while_acting")
        return self.membership

    @property
    def permissions(self) -> frozenset[Permission]:
        permissions = ROLE_PERMISSIONS[self.role]
        return permissions & ACTING_MAY if self.is_acting else permissions

    def may(self, permission: Permission) -> bool:
        return permission in self.permissions

    def may_change(self, permission: Permission) -> bool:
        """Return whether a change would be taken now: a suspended tenant takes none."""
        return (
            self.may(permission)
            and not self.tenant.is_suspended
            and not self._is_beyond_acting(permission, is_change=True)
        )

    def check(self, permission: Permission, *, is_change: bool) -> None:
        """Raises `NotPermitted` with the code `missing_role`, `not_while_acting` or
        `tenant_suspended`, and `EntryRefused` where the session has proven nothing of late."""
        if self._is_beyond_acting(permission, is_change=is_change):
            raise NotPermitted(_NOT_WHILE_ACTING, code="not_while_acting")
        if not self.may(permission):
            able = ", ".join(roles_with(permission))
            raise NotPermitted(
                f"Your role here is {self.role}; this takes one of: {able}.",
                code="missing_role",
                params={"permission": permission},
            )
        if is_change:
            if self.proofs is not None:
                check_recent_proof(self.tenant, permission, self.proofs)
            check_not_suspended(self.tenant)

    def _is_beyond_acting(self, permission: Permission, *, is_change: bool) -> bool:
        """Return whether it is within the role, and not for an operator who acts as a member."""
        bound = ACTING_MAY_CHANGE if is_change else ACTING_MAY
        return self.is_acting and permission in ROLE_PERMISSIONS[self.role] - bound


@contextmanager
def member_access(
    user: User, tenant_id: uuid.UUID, *, proofs: AuthenticationMethods, address: str | None = None
) -> Iterator[MemberAccess]:
    """Open the tenant's scope for one of its members. Raises `Tenant.DoesNotExist` for a tenant
    that they do not belong to, as for one that is closed or never was, and `EntryRefused` where
    their session has not proven what the tenant asks for."""
    with audit_actor(user.as_actor(), address), tenant_scope(tenant_id):
        # In one query, and before anything else is read there: live pages come here all the time.
        memberships = Membership.objects.select_related("tenant__tier")
        membership = memberships.filter(user=user, tenant__closed_at=None).first()
        if membership is None:
            raise Tenant.DoesNotExist
        tenant, role = membership.tenant, Role(membership.role)
        check_entry(tenant, user, role, proofs)
        yield MemberAccess(
            user=user, tenant=tenant, role=role, membership=membership, proofs=proofs
        )


def open_tenant(tenant_id: uuid.UUID) -> Tenant:
    """Return the tenant with its tier, within its scope. Raises `Tenant.DoesNotExist` for one that
    is closed, as for one that never was."""
    return Tenant.objects.select_related("tier").get(id=tenant_id, closed_at=None)


def check_not_suspended(tenant: Tenant) -> None:
    """Raises `NotPermitted` with the code `tenant_suspended`: such a tenant takes no change."""
    if tenant.is_suspended:
        raise NotPermitted(
            "This organisation is suspended. Contact the operator of the service.",
            code="tenant_suspended",
        )
