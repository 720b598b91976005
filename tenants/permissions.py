"""Who may do what within a tenant: the one table, for people by role and for API keys by scope."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from gpu_workers.protocol.policy import Scope


class Role(StrEnum):
    """What a user is in a tenant."""

    OWNER = "owner"
    ADMIN = "admin"
    DEVELOPER = "developer"
    BILLING = "billing"
    VIEWER = "viewer"


class Permission(StrEnum):
    """One thing that can be done with a tenant's records."""

    VIEW = "view"  # projects, keys (masked), limits, quotas
    VIEW_USAGE = "view_usage"
    VIEW_BALANCE = "view_balance"  # and the transactions behind it
    VIEW_INVOICES = "view_invoices"
    VIEW_AUDIT = "view_audit"
    VIEW_PEOPLE = "view_people"
    VIEW_WEBHOOKS = "view_webhooks"  # and what was sent to them
    VIEW_ADAPTERS = "view_adapters"
    WRITE_KEYS = "write_keys"
    WRITE_ADAPTERS = "write_adapters"
    WRITE_PROJECTS = "write_projects"  # and the tenant's name
    WRITE_QUOTAS = "write_quotas"  # of tenant, projects and keys; the operator's hold beside them
    WRITE_PEOPLE = "write_people"
    WRITE_WEBHOOKS = "write_webhooks"  # and test, redeliver, rotate their secrets
    WRITE_SIGN_ON = "write_sign_on"  # provider, mail domains, what sessions have to prove
    EXPORT = "export"
    TRANSFER = "transfer"  # hand ownership over
    CLOSE = "close"  # delete the tenant's data


_VIEWER: Final = frozenset({Permission.VIEW, Permission.VIEW_USAGE, Permission.VIEW_ADAPTERS})
_DEVELOPER: Final = _VIEWER | {
    Permission.VIEW_WEBHOOKS,
    Permission.WRITE_KEYS,
    Permission.WRITE_ADAPTERS,
}
_ADMIN: Final = _DEVELOPER | {
    Permission.VIEW_BALANCE,
    Permission.VIEW_INVOICES,
    Permission.VIEW_AUDIT,
    Permission.VIEW_PEOPLE,
    Permission.WRITE_PROJECTS,
    Permission.WRITE_QUOTAS,
    Permission.WRITE_PEOPLE,
    Permission.WRITE_WEBHOOKS,
    Permission.EXPORT,
}

ROLE_PERMISSIONS: Final[dict[Role, frozenset[Permission]]] = {
    Role.OWNER: _ADMIN | {Permission.WRITE_SIGN_ON, Permission.TRANSFER, Permission.CLOSE},
    Role.ADMIN: _ADMIN,
    Role.DEVELOPER: _DEVELOPER,
    Role.BILLING: _VIEWER | {Permission.VIEW_BALANCE, Permission.VIEW_INVOICES, Permission.EXPORT},
    Role.VIEWER: _VIEWER,
}

SCOPE_PERMISSIONS: Final[dict[Scope, frozenset[Permission]]] = {
    Scope.INFERENCE: frozenset(),
    Scope.USAGE_READ: frozenset({Permission.VIEW_USAGE}),
    Scope.ADAPTERS_WRITE: frozenset({Permission.VIEW_ADAPTERS, Permission.WRITE_ADAPTERS}),
    Scope.KEYS_WRITE: frozenset({Permission.VIEW, Permission.WRITE_KEYS}),
    Scope.ADMIN: _ADMIN,
}

# What costs a tenant everything, if it is done by who finds an open session: a person proves who
# they are within the last ten minutes (`tenants.access.entry_policy`).
NEEDS_RECENT_PROOF: Final = frozenset(
    {Permission.WRITE_SIGN_ON, Permission.EXPORT, Permission.TRANSFER, Permission.CLOSE}
)

# What an operator who acts as a member may, where the role may too, named one by one: whatever is
# not here, keys, money, sign-on, people, exports, and what will be added, takes a real member.
ACTING_MAY_CHANGE: Final = frozenset({Permission.WRITE_PROJECTS})
ACTING_MAY: Final = ACTING_MAY_CHANGE | {
    Permission.VIEW,
    Permission.VIEW_USAGE,
    Permission.VIEW_BALANCE,
    Permission.VIEW_INVOICES,
    Permission.VIEW_AUDIT,
    Permission.VIEW_PEOPLE,
    Permission.VIEW_WEBHOOKS,
    Permission.VIEW_ADAPTERS,
}
# Nobody acts as an owner: some of what is theirs goes by the role itself.
ACTING_ROLES: Final = (Role.VIEWER, Role.BILLING, Role.DEVELOPER, Role.ADMIN)


def may_grant(own: frozenset[Permission], role: Role) -> bool:
    """Return whether somebody with these permissions may give or take a role: none with more
    permissions."""
    return ROLE_PERMISSIONS[role] <= own


def grantable_scopes(own: frozenset[Permission]) -> list[Scope]:
    """Return the scopes that somebody with these permissions may give an API key."""
    return [scope for scope in Scope if SCOPE_PERMISSIONS[scope] <= own]


def roles_with(permission: Permission) -> list[Role]:
    return [role for role in Role if permission in ROLE_PERMISSIONS[role]]


def scope_for(permission: Permission) -> Scope | None:
    """Return the narrowest scope of an API key that has a permission, if any has."""
    scopes = [scope for scope in Scope if permission in SCOPE_PERMISSIONS[scope]]
    return min(scopes, key=lambda scope: len(SCOPE_PERMISSIONS[scope]), default=None)


def permissions_of(scopes: Iterable[Scope]) -> frozenset[Permission]:
    """Return what an API key with these scopes may do."""
    return frozenset().union(*(SCOPE_PERMISSIONS[scope] for scope in scopes))
