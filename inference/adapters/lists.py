"""Adapters and their versions, as a tenant's people read them. Call these inside the tenant's
scope."""

import uuid
from typing import Final

from django.db.models import BigIntegerField, Count, OuterRef, Prefetch, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce

from inference.models.adapter import HELD_STATES, Adapter, AdapterState, AdapterVersion
from tenants.models import ApiKey
from tenants.pagination import NEWEST_FIRST, Order, Page, page

# A name is once in a tenant.
ADAPTERS_BY_NAME: Final = Order(name="adapters by name", fields={"slug": str})
VERSIONS_ORDER: Final = Order(name="an adapter's versions", fields=NEWEST_FIRST, is_descending=True)


def list_adapters(
    *, is_archived: bool = False, limit: int, cursor: str | None = None
) -> Page[Adapter]:
    """Return a page of adapters by name, each with its versions but the deleted ones, the newest
    first. Raises `BadCursor`."""
    rows = Adapter.objects.filter(archived_at__isnull=not is_archived)
    versions = AdapterVersion.objects.exclude(state=AdapterState.DELETED).order_by("-number")
    shown = rows.select_related("tenant").prefetch_related(Prefetch("versions", versions))
    return page(shown, ADAPTERS_BY_NAME, limit=limit, cursor=cursor)


def with_totals(adapters: QuerySet[Adapter]) -> QuerySet[Adapter]:
    """Add how many versions each has, `version_count`, but for the deleted ones, and how many bytes
    of the store they take, `stored_bytes`."""
    versions = AdapterVersion.objects.filter(adapter=OuterRef("pk")).order_by()
    kept = versions.exclude(state=AdapterState.DELETED).values("adapter")
    stored = versions.filter(state__in=HELD_STATES).values("adapter")
    # Counted for the rows of a page; a join would count for all.
    return adapters.annotate(
        version_count=Coalesce(Subquery(kept.annotate(n=Count("pk")).values("n")), 0),
        stored_bytes=Coalesce(
            Subquery(stored.annotate(n=Sum("stored_bytes")).values("n")),
            0,
            output_field=BigIntegerField(),
        ),
    )


def find_adapter(adapter_id: uuid.UUID) -> Adapter:
    """Return one of them. Raises `Adapter.DoesNotExist`."""
    return Adapter.objects.select_related("tenant", "model").get(id=adapter_id)


def list_versions(
    adapter: Adapter, *, limit: int, cursor: str | None = None
) -> Page[AdapterVersion]:
    """Return a page of an adapter's versions, the newest first. Raises `BadCursor`."""
    rows = AdapterVersion.objects.filter(adapter=adapter)
    return page(rows, VERSIONS_ORDER, limit=limit, cursor=cursor)


def ready_versions(adapter: Adapter) -> QuerySet[AdapterVersion]:
    """Return those that traffic may point at, the newest first."""
    return adapter.versions.filter(state=AdapterState.READY).order_by("-number")


def stored_versions(adapter: Adapter) -> QuerySet[AdapterVersion]:
    """Return those that workers may have, `MAX_VERSIONS` at most."""
    return adapter.versions.filter(state__in=HELD_STATES)


def find_version(adapter_id: uuid.UUID, version_id: uuid.UUID) -> AdapterVersion:
    """Return a version with its adapter. Raises `AdapterVersion.DoesNotExist`."""
    rows = AdapterVersion.objects.select_related("adapter__tenant__tier", "adapter__model")
    return rows.get(id=version_id, adapter=adapter_id)


def count_keys_that_list(adapter: Adapter) -> int:
    """Count the working keys that name an adapter among those that they may use."""
    keys = ApiKey.objects.filter(tenant=adapter.tenant_id, revoked_at=None)
    return keys.filter(allowed_adapters__contains=[adapter.name]).count()
