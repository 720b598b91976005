"""A person inside one of their tenants: what they may do there, and what the tenant's state
forbids. All that they change bears their name in the audit log."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tenants.access.entrance import check_entry
from tenants.access.people import membership_of
from tenants.access.session_proofs import Proofs
from tenants.errors import NotPermitted
from tenants.isolation.audit_actor import audit_actor
from tenants.isolation.scoping import tenant_scope
from tenants.models import Membership, Tenant, User
from tenants.permissions import ROLE_PERMISSIONS, Permission, Role, roles_with


@dataclass(frozen=True, kw_only=True)
class MemberAccess:
    """`tenant` comes with its tier."""

    user: User
    tenant: Tenant
    membership: Membership

    @property
    def role(self) -> Role:
        return Role(self.membership.role)

    @property
    def permissions(self) -> frozenset[Permission]:
        return ROLE_PERMISSIONS[self.role]

    def may(self, permission: Permission) -> bool:
        return permission in self.permissions

    def may_change(self, permission: Permission) -> bool:
        """Return whether a change would be taken now: a suspended tenant takes none."""
        return self.may(permission) and not self.tenant.is_suspended

    def check(self, permission: Permission, *, is_change: bool) -> None:
        """Raises `NotPermitted` with the code `missing_role` or `tenant_suspended`."""
        if not self.may(permission):
            able = ", ".join(roles_with(permission))
            raise NotPermitted(
                f"Your role here is {self.role}; this takes one of: {able}.",
                code="missing_role",
                params={"permission": permission},
            )
        if is_change:
            check_not_suspended(self.tenant)


@contextmanager
def member_access(
    user: User, tenant_id: uuid.UUID, *, proofs: Proofs, address: str | None = None
) -> Iterator[MemberAccess]:
    """Open the tenant's scope for one of its members. Raises `Tenant.DoesNotExist` for a tenant
    that they do not belong to, as for one that is closed or never was, and `EntryRefused` where
    their session has not proven what the tenant asks for."""
    membership = membership_of(user, tenant_id)
    if membership is None:
        raise Tenant.DoesNotExist
    with audit_actor(user.as_actor(), address), tenant_scope(tenant_id):
        tenant = open_tenant(tenant_id)
        check_entry(tenant, user, Role(membership.role), proofs)
        yield MemberAccess(user=user, tenant=tenant, membership=membership)


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
