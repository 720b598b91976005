"""All that belongs to a tenant, as it may leave the house: no digest, no password."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

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

Record = dict[str, Any]
Source = Callable[[uuid.UUID], Iterable[models.Model | Record]]

_sources: dict[str, Source] = {}


def register_export(kind: str, source: Source) -> None:
    """Add a tenant's records of a floor above this one, e.g. its usage; those that are no row come
    as they are to be told."""
    _sources[kind] = source


def tenant_records(tenant: Tenant) -> Iterator[Record]:
    """Yield one record after the other, each with its `kind`; within an operator's or its own
    scope."""
    yield exported_record("tenant", tenant)
    rows: list[tuple[str, Iterable[models.Model | Record]]] = [
        ("project", Project.objects.filter(tenant=tenant)),
        ("quota", Quota.objects.filter(tenant=tenant)),
        ("invitation", Invitation.objects.filter(tenant=tenant)),
        ("saved_view", SavedView.objects.filter(tenant=tenant)),
        ("quota_alert", QuotaAlert.objects.filter(tenant=tenant)),
        *((kind, source(tenant.id)) for kind, source in sorted(_sources.items())),
    ]
    for key in ApiKey.objects.filter(tenant=tenant):
        yield exported_record("api_key", key) | {"masked": key.masked}
    for member in Membership.objects.filter(tenant=tenant).select_related("user"):
        yield exported_record("member", member) | {
            "email": member.user.email,
            "name": member.user.name,
        }
    for kind, source in rows:
        for row in source:
            if isinstance(row, models.Model):
                yield exported_record(kind, row)
            else:
                yield {"kind": kind, **row}
    for event in exported_events(AuditEvent.objects.filter(tenant=tenant)):
        yield {"kind": "audit_event", **event}


def exported_record(kind: str, row: models.Model) -> Record:
    """Return the columns of a record, but for digests."""
    fields = (field for field in row._meta.concrete_fields if not _is_binary(field))
    return {"kind": kind, **{field.attname: getattr(row, field.attname) for field in fields}}


def _is_binary(field: Any) -> bool:
    return isinstance(field, models.BinaryField)
