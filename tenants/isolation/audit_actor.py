"""Who is behind what the running code changes, for the audit log.

PostgreSQL writes the log (see `audit.sql`); a setting of the transaction names who acts.
"""

import ipaddress
import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from django.db import connection
from django.http import HttpRequest
from psycopg.pq import TransactionStatus

ACTOR_SETTING = "penstock.actor"


class ActorKind(StrEnum):
    USER = "user"
    API_KEY = "api_key"
    COMMAND = "command"
    JOB = "job"
    UNKNOWN = "unknown"


class Verb(StrEnum):
    """The log's words. The first three are said by the database where nobody had a better one."""

    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    ROTATED = "rotated"
    REVOKED = "revoked"
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    MOVED = "moved"  # to another tier
    CLOSED = "closed"
    EXPORTED = "exported"
    ISSUED = "issued"  # an invoice, and so on
    PAID = "paid"
    VOIDED = "voided"
    RESENT = "resent"  # an invitation, and so on
    WITHDRAWN = "withdrawn"
    ACCEPTED = "accepted"
    DECLINED = "declined"
    REFUSED = "refused"
    ARCHIVED = "archived"
    POINTED = "pointed"  # an adapter's traffic, at versions
    PINNED = "pinned"
    UNPINNED = "unpinned"
    DRAINED = "drained"  # a worker, from now on
    TRANSFERRED = "transferred"  # ownership
    LEFT = "left"
    SIGNED_IN = "signed_in"
    SIGN_IN_FAILED = "sign_in_failed"
    SIGNED_OUT = "signed_out"
    SIGNED_UP = "signed_up"
    SIGN_ON_REFUSED = "sign_on_refused"
    DOMAIN_PROVEN = "domain_proven"
    SESSIONS_ENDED = "sessions_ended"
    SECOND_FACTOR_ADDED = "second_factor_added"
    SECOND_FACTOR_REMOVED = "second_factor_removed"
    SECOND_FACTOR_FAILED = "second_factor_failed"
    PASSWORD_CHANGED = "password_changed"  # noqa: S105
    PASSWORD_RESET_REQUESTED = "password_reset_requested"  # noqa: S105
    PASSWORD_RESET = "password_reset"  # noqa: S105
    EMAIL_CHANGE_REQUESTED = "email_change_requested"
    EMAIL_CHANGED = "email_changed"
    OPERATOR_ENTERED = "operator_entered"  # acts as a member from now on
    OPERATOR_LEFT = "operator_left"
    REPORTED = "reported"  # to an operator, on tenants that are not theirs


@dataclass(frozen=True, kw_only=True)
class Actor:
    """`id` is kept for ever and must not name a person; `name` is for people to read and can be
    erased."""

    kind: ActorKind
    id: str = ""
    name: str = ""
    address: str | None = None
    # What the log calls a change made now, where there is a better word than `changed`.
    verb: Verb | None = None

    def to_setting(self) -> str:
        return json.dumps({name: value for name, value in asdict(self).items() if value})


UNKNOWN_ACTOR = Actor(kind=ActorKind.UNKNOWN)

_actor: ContextVar[Actor | None] = ContextVar("penstock_actor", default=None)
# Who acts where no `audit_actor` is set: what the open scope is for.
_default: ContextVar[Actor] = ContextVar("penstock_default_actor", default=UNKNOWN_ACTOR)


def current_actor() -> Actor:
    return _actor.get() or _default.get()


@contextmanager
def audit_actor(actor: Actor, address: str | None = None) -> Iterator[None]:
    """Record changes made inside as the actor's, from `address` (left out where it is no IP
    address)."""
    with _acting_as(replace(actor, address=_address(address) or actor.address)):
        yield


@contextmanager
def audited_as(verb: Verb) -> Iterator[None]:
    """Record changes made inside under a word of their own, e.g. `rotated`."""
    with _acting_as(replace(current_actor(), verb=verb)):
        yield


@contextmanager
def default_audit_actor(actor: Actor | None) -> Iterator[None]:
    """Set who acts where no `audit_actor` is set. For scopes, which set it in PostgreSQL with
    their own settings."""
    token = _default.set(actor or _default.get())
    try:
        yield
    finally:
        _default.reset(token)


def actor_for(reason: str) -> Actor:
    """Return who acts in an operator's scope, by its reason: `command create_tenant` or a job's
    name."""
    kind, _, rest = reason.partition(" ")
    if kind == ActorKind.COMMAND and rest:
        return Actor(kind=ActorKind.COMMAND, id=rest)
    return Actor(kind=ActorKind.JOB, id=reason)


@contextmanager
def _acting_as(actor: Actor) -> Iterator[None]:
    token = _actor.set(actor)
    try:
        _set_in_postgres()
        yield
    finally:
        _actor.reset(token)
        _set_in_postgres()


def _set_in_postgres() -> None:
    """Tell PostgreSQL the actor if a transaction is open; a scope that is opened later does so with
    its own settings."""
    if not connection.in_atomic_block or _is_broken():
        return
    with connection.cursor() as cursor:
        cursor.execute("SELECT set_config(%s, %s, true)", [ACTOR_SETTING, current_setting()])


def current_setting() -> str:
    return current_actor().to_setting()


def _is_broken() -> bool:
    """Return whether a statement failed in this transaction, which then takes none but its end."""
    status = connection.connection.info.transaction_status
    return connection.needs_rollback or status == TransactionStatus.INERROR


def _address(text: str | None) -> str | None:
    try:
        return None if not text else str(ipaddress.ip_address(text))
    except ValueError:
        return None  # a Unix socket, or a host name of a test client


def address_of(request: HttpRequest) -> str | None:
    """Return the caller's address, None where there is none. Proxies are the edge's business: no
    header is read here."""
    return request.META.get("REMOTE_ADDR") or None
