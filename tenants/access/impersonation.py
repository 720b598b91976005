"""Operators who act as a member of a tenant: with a reason, for half an hour at most, and with less
than the role may (`tenants.permissions.ACTING_MAY`).

Nobody is signed in as somebody else. The operator's own session says of which tenant it is a member
for now, so that whatever belongs to a person, their account, their API session, stays theirs, and
what the operator changes bears the operator's name.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.contrib.auth.signals import user_logged_out
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest

from tenants.access.entry_policy import is_operators
from tenants.access.member_access import MemberAccess, open_tenant
from tenants.access.session_proofs import proofs_of
from tenants.audit.log import record
from tenants.errors import Conflict, NotPermitted
from tenants.isolation.audit_actor import Verb, address_of, audit_actor
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import Tenant, User
from tenants.permissions import ACTING_ROLES, Role
from tenants.webhooks.event_types import EventType
from tenants.webhooks.events import publish

LONGEST: Final = timedelta(minutes=30)
_KEY: Final = "acting"


@dataclass(frozen=True, kw_only=True)
class Impersonation:
    """What the session of the operator says. `tenant_name` is for people to read."""

    id: uuid.UUID
    operator_id: uuid.UUID
    tenant_id: uuid.UUID
    tenant_name: str
    role: Role
    until: datetime


def may_act(session: SessionBase, user: User) -> bool:
    """Return whether a session is that of an operator who may make members of tenants. Who may make
    anybody a member gains nothing by acting as one."""
    return is_operators(user, proofs_of(session)) and user.has_perm("tenants.add_membership")


def start(
    session: SessionBase,
    operator: User,
    tenant: Tenant,
    *,
    role: Role,
    reason: str,
    address: str | None,
) -> Impersonation:
    """Let the session act as a member of the tenant, record it there and tell the owners. Raises
    `NotPermitted`, and `Conflict` for a session that acts already or a tenant that is closed."""
    if not may_act(session, operator) or role not in ACTING_ROLES:
        raise NotPermitted("You may not act as a member in this role.", code="may_not_act")
    if impersonation_of(session, operator, address) is not None:
        raise Conflict("You act as a member already; end that first.", code="already_acting")
    if tenant.is_closed:
        raise Conflict("This organisation is closed.", code="closed")
    acting = Impersonation(
        id=uuid.uuid4(),
        operator_id=operator.pk,
        tenant_id=tenant.pk,
        tenant_name=tenant.name,
        role=role,
        until=datetime.now(UTC) + LONGEST,
    )
    told = {"role": role.value, "reason": reason, "until": acting.until.isoformat("T", "seconds")}
    with audit_actor(operator.as_actor(), address), operator_scope("acting as a member"):
        record(Verb.OPERATOR_ENTERED, tenant, tenant_id=tenant.pk, **told)
        publish(tenant.pk, EventType.OPERATOR_ENTERED, told, key=str(acting.id))
    session[_KEY] = {name: str(value) for name, value in vars(acting).items()}
    return acting


def impersonation_of(session: SessionBase, user: User, address: str | None) -> Impersonation | None:
    """Return as what the session acts, None for nearly all. What has run out, or is no longer
    permitted, ends here."""
    acting = _read(session)
    if acting is None:
        return None
    is_over = datetime.now(UTC) >= acting.until
    if is_over or acting.operator_id != user.pk or not may_act(session, user):
        _end(session, acting, user, address)
        return None
    return acting


def end(session: SessionBase, user: User, address: str | None) -> Impersonation | None:
    """Let the session act no longer, and record it; return as what it did, None if it did not."""
    acting = _read(session)
    if acting is not None:
        _end(session, acting, user, address)
    return acting


@contextmanager
def impersonated_access(
    operator: User, acting: Impersonation, *, address: str | None = None
) -> Iterator[MemberAccess]:
    """Open the tenant's scope for an operator who acts as a member. Raises `Tenant.DoesNotExist`
    for a tenant that is closed."""
    with audit_actor(operator.as_actor(), address), tenant_scope(acting.tenant_id):
        tenant = open_tenant(acting.tenant_id)
        yield MemberAccess(user=operator, tenant=tenant, role=acting.role, membership=None)


def connect() -> None:
    """Record that it ends with the operator's own session."""
    user_logged_out.connect(_signed_out, dispatch_uid="acting")


def _signed_out(*, request: HttpRequest | None, user: User | None, **_: Any) -> None:
    if request is not None and user is not None:
        end(request.session, user, address_of(request))


def _end(session: SessionBase, acting: Impersonation, user: User, address: str | None) -> None:
    del session[_KEY]
    with audit_actor(user.as_actor(), address), operator_scope("acting as a member"):
        tenant = Tenant.objects.filter(pk=acting.tenant_id).first()
        record(Verb.OPERATOR_LEFT, tenant, tenant_id=acting.tenant_id)


def _read(session: SessionBase) -> Impersonation | None:
    told = session.get(_KEY)
    if told is None:
        return None
    return Impersonation(
        id=uuid.UUID(told["id"]),
        operator_id=uuid.UUID(told["operator_id"]),
        tenant_id=uuid.UUID(told["tenant_id"]),
        tenant_name=told["tenant_name"],
        role=Role(told["role"]),
        until=datetime.fromisoformat(told["until"]),
    )
