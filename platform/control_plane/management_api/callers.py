"""Who asks: a person with a session, or an API key; and what they may do in a tenant."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from control_plane.management_api.errors import NOTHING_HERE
from gpu_workers.protocol.policy import Scope
from inference.errors import Forbidden, InferenceError, NotFound
from tenants.access.entry_policy import EntryRefused, check_entry, check_recent_proof
from tenants.access.people import membership_of
from tenants.access.session_proofs import AuthenticationMethods
from tenants.isolation.audit_actor import Actor
from tenants.models import ApiKey, Membership, Tenant, User
from tenants.permissions import (
    ROLE_PERMISSIONS,
    Permission,
    Role,
    permissions_of,
    roles_with,
    scope_for,
)


@dataclass(frozen=True, kw_only=True)
class TenantAccess:
    """What a caller may do in one tenant, and as what: a member or a key of it."""

    permissions: frozenset[Permission]
    principal: Membership | ApiKey

    @property
    def role(self) -> Role | None:
        return Role(self.principal.role) if isinstance(self.principal, Membership) else None


@dataclass(frozen=True, kw_only=True)
class Person:
    """With what their session has proven."""

    user: User
    address: str | None
    proofs: AuthenticationMethods

    def as_actor(self) -> Actor:
        return self.user.as_actor()

    def access_to(self, tenant_id: uuid.UUID) -> TenantAccess:
        """Check their membership. Raises `NotFound` for a tenant that they do not belong to, as
        if there were none."""
        membership = membership_of(self.user, tenant_id)
        if membership is None:
            raise NotFound(NOTHING_HERE)
        return TenantAccess(
            permissions=ROLE_PERMISSIONS[Role(membership.role)], principal=membership
        )

    def check_entry(self, tenant: Tenant, access: TenantAccess) -> None:
        """Check what the tenant asks of sessions, inside its scope. Raises `Forbidden`."""
        assert access.role is not None  # a person's  # noqa: S101
        with _forbidden():
            check_entry(tenant, self.user, access.role, self.proofs)

    def check_recent_proof(self, tenant: Tenant, permission: Permission) -> None:
        """Check what a change asks of sessions, inside the tenant's scope. Raises `Forbidden`."""
        with _forbidden():
            check_recent_proof(tenant, permission, self.proofs)

    def refusal(self, permission: Permission, access: TenantAccess) -> InferenceError:
        able = ", ".join(roles_with(permission))
        return Forbidden(
            f"Your role here is {access.role}; this takes one of: {able}.", code="missing_role"
        )


@dataclass(frozen=True, kw_only=True)
class KeyBearer:
    key: ApiKey
    address: str | None

    def as_actor(self) -> Actor:
        return self.key.as_actor()

    @property
    def scopes(self) -> list[Scope]:
        return [Scope(scope) for scope in self.key.scopes]

    def access_to(self, tenant_id: uuid.UUID) -> TenantAccess:
        """Check the key's tenant. Raises `NotFound` for any other, as if there were none."""
        if tenant_id != self.key.tenant_id:
            raise NotFound(NOTHING_HERE)
        return TenantAccess(permissions=permissions_of(self.scopes), principal=self.key)

    def check_entry(self, _tenant: Tenant, _access: TenantAccess) -> None:
        """Check nothing: a key is no session."""

    def check_recent_proof(self, _tenant: Tenant, _permission: Permission) -> None:
        """Check nothing, as well."""

    def refusal(self, permission: Permission, _access: TenantAccess) -> InferenceError:
        scope = scope_for(permission)
        if scope is None:
            return people_only()
        has = ", ".join(f"`{each.value}`" for each in self.scopes)
        return Forbidden(
            f"This needs an API key with the scope `{scope.value}`; this one has {has}.",
            code="missing_scope",
        )


Caller = Person | KeyBearer


@contextmanager
def _forbidden() -> Iterator[None]:
    """Raise `Forbidden` for what a session lacks."""
    try:
        yield
    except EntryRefused as refusal:
        raise Forbidden(refusal.message, code=refusal.code) from None


def people_only() -> InferenceError:
    return Forbidden("No API key may do this; sign in as a person.")
