"""Whose rows the running code may touch: one tenant's, one user's memberships, or all.

PostgreSQL enforces it (row-level security, see `row_security`), the managers of tenants' models ask
it first and raise where nothing is open. A scope is a transaction: its settings are local to it and
gone with it, so that a pooled connection never carries a tenant to the next caller.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from django.db import connection, models, transaction

from tenants.isolation.audit_actor import (
    ACTOR_SETTING,
    Actor,
    ActorKind,
    actor_for,
    current_setting,
    default_audit_actor,
)
from tenants.isolation.roles import OPERATOR_ROLE, WEB_ROLE

TENANT_SETTING = "penstock.tenant"
USER_SETTING = "penstock.user"

_Row = TypeVar("_Row", bound=models.Model)


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What is open: for a tenant, for a user who has chosen none yet, or for an operator, whose
    `reason` names the page, command or job."""

    tenant_id: uuid.UUID | None = None
    user_id: uuid.UUID | None = None
    reason: str | None = None

    @property
    def is_operator(self) -> bool:
        return self.reason is not None

    @property
    def actor(self) -> Actor | None:
        """Return whose changes they are where no `audit_actor` is set; None leaves it to the outer
        scope."""
        if self.reason is not None:
            return actor_for(self.reason)
        if self.user_id is not None:
            return Actor(kind=ActorKind.USER, id=str(self.user_id))
        return None


class NoTenantScope(RuntimeError):
    """A tenant's records were asked for and nobody had said whose. `scope` is what was open: none,
    or that of a user."""

    def __init__(self, model: type[models.Model], scope: Scope | None) -> None:
        what = "nobody has said whose" if scope is None else "only a user is known"
        super().__init__(
            f"{model.__name__} belongs to tenants, and {what}: open tenant_scope(tenant_id), or "
            "operator_scope(reason) to look across them."
        )
        self.scope = scope


_open_scope: ContextVar[Scope | None] = ContextVar("penstock_scope", default=None)


def current_scope() -> Scope | None:
    return _open_scope.get()


@contextmanager
def tenant_scope(tenant_id: uuid.UUID) -> Iterator[None]:
    """Open a transaction that sees and changes the records of one tenant."""
    with _opened(Scope(tenant_id=tenant_id)):
        yield


@contextmanager
def user_scope(user_id: uuid.UUID) -> Iterator[None]:
    """Open a transaction that sees a user's own memberships: for sign-in, before a tenant is
    known."""
    with _opened(Scope(user_id=user_id)):
        yield


@contextmanager
def operator_scope(reason: str) -> Iterator[None]:
    """Open a transaction that sees all tenants, for the operators' pages, commands and named
    jobs."""
    with _opened(Scope(reason=reason)):
        yield


@contextmanager
def assume_scope(scope: Scope | None) -> Iterator[None]:
    """Make `scope` the open one without telling PostgreSQL, for whoever has set the role of a whole
    connection; the scopes above do both."""
    token = _open_scope.set(scope)
    try:
        yield
    finally:
        _open_scope.reset(token)


class ScopedManager(models.Manager[_Row], Generic[_Row]):
    """Finds the records of the open scope's tenant; raises `NoTenantScope` where none is open.

    A model of a tenant names the path to its tenant's id in `tenant_path`.
    """

    def get_queryset(self) -> "models.QuerySet[_Row]":
        scope = _open_scope.get()
        rows = super().get_queryset()
        if scope is None:
            raise NoTenantScope(self.model, scope)
        if scope.is_operator:
            return rows
        return rows.filter(**self._only(scope))

    def _only(self, scope: Scope) -> dict[str, Any]:
        if scope.tenant_id is not None:
            return {getattr(self.model, "tenant_path", "tenant_id"): scope.tenant_id}
        user_path = getattr(self.model, "user_path", None)
        if user_path is None:
            raise NoTenantScope(self.model, scope)
        return {user_path: scope.user_id}


@contextmanager
def _opened(scope: Scope) -> Iterator[None]:
    before = _open_scope.get()
    with transaction.atomic():
        with assume_scope(scope), default_audit_actor(scope.actor):
            _set_in_postgres(scope)
            yield
        # Where this is part of a longer transaction; after an error its savepoint undoes it.
        _set_in_postgres(before)


def give_connection_back() -> None:
    """Give this thread's database connection back to the pool, for whoever is about to wait for
    somebody else's server. Does nothing inside a transaction."""
    if not connection.in_atomic_block:
        connection.close()


def _set_in_postgres(scope: Scope | None) -> None:
    """Set role and scope in one round trip, until they are set anew or the transaction ends."""
    scope = scope or Scope()
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('role', %s, true), set_config(%s, %s, true),"
            " set_config(%s, %s, true), set_config(%s, %s, true)",
            [
                OPERATOR_ROLE if scope.is_operator else WEB_ROLE,
                TENANT_SETTING,
                str(scope.tenant_id or ""),
                USER_SETTING,
                str(scope.user_id or ""),
                ACTOR_SETTING,
                current_setting(),
            ],
        )
