"""All that belongs to a tenant, as it may leave the house: no digest, no password."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from django.db import models

from tenants.audit.log import exported_events
from tenants.models import (
    ApiKey,
    AuditEvent,
    Invitation,
    Membership,
    Project,
    Quota,
    QuotaAlert,
    SavedView,
    Tenant,
)
from tenants.permissions import Permission

Record = dict[str, Any]
Source = Callable[[uuid.UUID], Iterable[models.Model | Record]]

_sources: dict[str, tuple[Source, Permission]] = {}


def rows_of(kind: type[models.Model]) -> Source:
    """Return the source of a tenant's rows of one kind."""
    return lambda tenant_id: kind._default_manager.filter(tenant=tenant_id)


def register_export(kind: str, source: Source, permission: Permission) -> None:
    """Add a tenant's records of a floor above this one, e.g. its usage, for whoever has the
    permission that they take elsewhere; those that are no row come as they are to be told."""
    _sources[kind] = source, permission


def tenant_records(
    tenant: Tenant, permissions: frozenset[Permission] | None = None
) -> Iterator[Record]:
    """Yield one record after the other, each with its `kind`, of all that these permissions let one
    see, and last which kinds they do not; everything without any. Within an operator's or its own
    scope."""
    yield exported_record("tenant", tenant)
    left_out = []
    for kind, (source, permission) in {**_OWN, **dict(sorted(_sources.items())), **_LAST}.items():
        if permissions is not None and permission not in permissions:
            left_out.append(kind)
            continue
        for row in source(tenant.id):
            if isinstance(row, models.Model):
                yield exported_record(kind, row)
            else:
                yield {"kind": kind, **row}
    if left_out:
        yield {"kind": "left_out", "kinds": left_out, "reason": "Your role may not see them."}


def _api_keys(tenant_id: uuid.UUID) -> Iterator[Record]:
    for key in ApiKey.objects.filter(tenant=tenant_id):
        yield exported_record("api_key", key) | {"masked": key.masked}


def _members(tenant_id: uuid.UUID) -> Iterator[Record]:
    for member in Membership.objects.filter(tenant=tenant_id).select_related("user"):
        told = {"email": member.user.email, "name": member.user.name}
        yield exported_record("member", member) | told


def _audit_events(tenant_id: uuid.UUID) -> Iterator[Record]:
    yield from exported_events(AuditEvent.objects.filter(tenant=tenant_id))


_OWN: Final[dict[str, tuple[Source, Permission]]] = {
    "api_key": (_api_keys, Permission.VIEW),
    "member": (_members, Permission.VIEW_PEOPLE),
    "project": (rows_of(Project), Permission.VIEW),
    "quota": (rows_of(Quota), Permission.VIEW),
    "invitation": (rows_of(Invitation), Permission.VIEW_PEOPLE),
    "saved_view": (rows_of(SavedView), Permission.VIEW_USAGE),
    "quota_alert": (rows_of(QuotaAlert), Permission.VIEW),
}
_LAST: Final[dict[str, tuple[Source, Permission]]] = {
    "audit_event": (_audit_events, Permission.VIEW_AUDIT)
}


def exported_record(kind: str, row: models.Model) -> Record:
    """Return the columns of a record, but for digests."""
    fields = (field for field in row._meta.concrete_fields if not _is_binary(field))
    return {"kind": kind, **{field.attname: getattr(row, field.attname) for field in fields}}


def _is_binary(field: Any) -> bool:
    return isinstance(field, models.BinaryField)
