"""What the audit log is told beside the changes that it sees itself, and how it is checked."""

import json
import uuid
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db import connection, models
from django.db.models import QuerySet

from tenants.audit.chain import NO_TENANT, ChainCheck, ChainedEvent, event_hash
from tenants.audit.checkpoints import PAGE, Place, Step, verify_whole
from tenants.isolation.audit_actor import Verb, audit_actor, current_actor
from tenants.isolation.scoping import current_scope, operator_scope
from tenants.models import AuditChain, AuditEvent, Tenant

_PAGE = 2000
_WITHOUT_TENANT = uuid.UUID(NO_TENANT)


def record(
    verb: Verb, of: models.Model | None, *, tenant_id: uuid.UUID | None = None, **details: Any
) -> None:
    """Put something into the log that is no change of a record. The details are kept for ever:
    no names, no addresses, no secrets."""
    scope = current_scope()
    if scope is None or (not scope.is_operator and scope.tenant_id != tenant_id):
        # The scope that is opened for the log's sake is not who acts.
        with audit_actor(current_actor()), operator_scope("audit log"):
            _record(verb, of, tenant_id, details)
    else:
        _record(verb, of, tenant_id, details)


def _record(
    verb: Verb, of: models.Model | None, tenant_id: uuid.UUID | None, details: dict[str, Any]
) -> None:
    record_of = ("", "", "") if of is None else (of._meta.label, str(of.pk), str(of))
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT penstock_audit_record(%s, %s, %s, %s, %s, %s)",
            [tenant_id, verb, *record_of, json.dumps(details)],
        )


def seal_now() -> None:
    """Bring what the open transaction changed into the log already, where it is to be read or
    erased before the commit. Others who commit wait from here on."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS audit_mark_due, audit_seal IMMEDIATE")
        cursor.execute("SET CONSTRAINTS audit_mark_due, audit_seal DEFERRED")


# Reading ----------------------------------------------------------------------------------------


def in_order(events: QuerySet[AuditEvent]) -> Iterator[AuditEvent]:
    """Yield the events chain by chain in order of sequence, with what is left of the personal
    details."""
    ordered = events.select_related("personal").order_by("tenant_id", "sequence")
    return ordered.iterator(chunk_size=_PAGE)


def events_since(events: QuerySet[AuditEvent], moment: datetime) -> QuerySet[AuditEvent]:
    """Select each chain from its first event at or after a moment. Events are chained in the order
    of commits, so one that is older may follow, and belongs to what can be checked."""
    newest_so_far = models.Window(models.Max("at"), partition_by="tenant_id", order_by="sequence")
    return events.annotate(newest_so_far=newest_so_far).filter(newest_so_far__gte=moment)


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


def exported_events(events: QuerySet[AuditEvent]) -> Iterator[dict[str, Any]]:
    """Yield events with all that is needed to check them elsewhere: see `audit_chain`."""
    for event in in_order(events):
        personal = getattr(event, "personal", None)
        yield {
            "chain": str(event.tenant_id or NO_TENANT),
            "sequence": event.sequence,
            "at": written_time(event),
            "actor_kind": event.actor_kind,
            "actor_id": event.actor_id,
            "actor_name": "" if personal is None else personal.actor_name,
            "address": "" if personal is None else personal.address,
            "verb": event.verb,
            "record_kind": event.record_kind,
            "record_id": event.record_id,
            "record_name": "" if personal is None else personal.record_name,
            "changes": event.changes,
            "personal_changes": "" if personal is None else personal.changes,
            "salt": "" if personal is None else bytes(personal.salt).hex(),
            "personal_digest": bytes(event.personal_digest).hex(),
            "hash": bytes(event.hash).hex(),
        }


def written_time(event: AuditEvent) -> str:
    return event.at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class AuditChains:
    """The chains of the audit log, for `checkpoints`."""

    name = "audit log"

    def chains(self) -> Iterator[uuid.UUID]:
        yield _WITHOUT_TENANT
        yield from AuditChain.objects.values_list("chain", flat=True)
        yield from Tenant.objects.values_list("id", flat=True)

    def advance(self, chain: uuid.UUID, place: Place) -> Step:
        events = AuditEvent.objects.select_related("personal").filter(
            tenant=None if chain == _WITHOUT_TENANT else chain, sequence__gte=place.sequence
        )
        page = list(events.order_by("sequence")[: PAGE + bool(place.sequence)])
        problems: list[str] = []
        if place.sequence:
            first = page.pop(0) if page else None
            if first is None or not _is_still(first, place):
                problems.append(
                    f"event {place.sequence} of chain {chain}: it is not as fsck found it before."
                )
        check = ChainCheck(last={str(chain): (place.sequence, place.hash)})
        for event in page:
            problems += check.problems(chained(event))
        sequence, last = check.last[str(chain)]
        is_last = len(page) < PAGE
        if is_last:
            problems += _wrong_end(chain, sequence, last)
        return Step(place=Place(sequence=sequence, hash=last), problems=problems, is_last=is_last)


def _is_still(event: AuditEvent, place: Place) -> bool:
    return (
        event.sequence == place.sequence
        and bytes(event.hash) == place.hash
        and event_hash(chained(event), bytes(event.previous_hash)) == place.hash
    )


def _wrong_end(chain: uuid.UUID, sequence: int, last: bytes) -> Iterator[str]:
    head = AuditChain.objects.filter(chain=chain).first()
    if head is None:
        if sequence:
            yield f"chain {chain}: nothing is recorded of its newest event."
    elif (sequence, last) != (head.sequence, bytes(head.hash)):
        yield f"chain {chain}: its newest event is not number {head.sequence} as recorded."


def broken_chains() -> Iterator[str]:
    """Yield what is wrong with the log, from its beginning: an event changed, missing, or cut off
    at the end. Inside an operator's scope."""
    yield from verify_whole(AuditChains())
