"""What the audit log is told beside the changes that it sees itself, and how it is checked."""

import json
import uuid
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from django.db import connection, models
from django.db.models import QuerySet

from tenants.acting import acting, current_actor
from tenants.audit_chain import FIRST_HASH, NO_TENANT, ChainCheck, ChainedEvent
from tenants.models import AuditChain, AuditEvent
from tenants.scoping import current_scope, operator_scope

_PAGE = 2000


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
    SIGNED_IN = "signed_in"
    SIGN_IN_FAILED = "sign_in_failed"
    SIGNED_OUT = "signed_out"


def record(
    verb: Verb, of: models.Model, *, tenant_id: uuid.UUID | None = None, **details: Any
) -> None:
    """Put something into the log that is no change of a record. The details are kept for ever:
    no names, no addresses, no secrets."""
    scope = current_scope()
    if scope is None or (not scope.is_operator and scope.tenant_id != tenant_id):
        # The scope that is opened for the log's sake is not who acts.
        with acting(current_actor()), operator_scope("audit log"):
            _record(verb, of, tenant_id, details)
    else:
        _record(verb, of, tenant_id, details)


def _record(
    verb: Verb, of: models.Model, tenant_id: uuid.UUID | None, details: dict[str, Any]
) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT penstock_audit_record(%s, %s, %s, %s, %s, %s)",
            [tenant_id, verb, of._meta.label, str(of.pk), str(of), json.dumps(details)],
        )


# Reading ----------------------------------------------------------------------------------------


def in_order(events: QuerySet[AuditEvent]) -> Iterator[AuditEvent]:
    """Chain by chain, each in its order, with what is left of the personal details."""
    ordered = events.select_related("personal").order_by("tenant_id", "sequence")
    return ordered.iterator(chunk_size=_PAGE)


def chained(event: AuditEvent) -> ChainedEvent:
    personal = getattr(event, "personal", None)
    return ChainedEvent(
        chain=str(event.tenant_id or NO_TENANT),
        sequence=event.sequence,
        at=written_time(event),
        actor_kind=event.actor_kind,
        actor_id=event.actor_id,
        verb=event.verb,
        record_kind=event.record_kind,
        record_id=event.record_id,
        changes=event.changes,
        personal_digest=bytes(event.personal_digest),
        hash=bytes(event.hash),
        salt=b"" if personal is None else bytes(personal.salt),
        personal=None
        if personal is None
        else (personal.actor_name, personal.address, personal.record_name, personal.changes),
    )


def written_time(event: AuditEvent) -> str:
    return event.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def broken_chains() -> Iterator[str]:
    """What is wrong with the log: an event changed, missing, or cut off at the end. For fsck,
    inside an operator's scope."""
    check = ChainCheck()
    for event in in_order(AuditEvent.objects.all()):
        yield from check.problems(chained(event))
    for head in AuditChain.objects.all():
        newest = check.last.pop(str(head.chain), (0, FIRST_HASH))
        if newest != (head.sequence, bytes(head.hash)):
            yield f"chain {head.chain}: its newest event is not number {head.sequence} as recorded."
    for chain in check.last:
        yield f"chain {chain}: nothing is recorded of its newest event."
