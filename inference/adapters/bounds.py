"""What a tier promises of adapters: how many, in how many versions, how large together, of what
rank."""

import uuid
from dataclasses import dataclass
from typing import Final

from django.db.models import Case, F, Sum, When

from inference.models.adapter import (
    HELD_STATES,
    IN_PROGRESS,
    STORED_STATES,
    Adapter,
    AdapterState,
    AdapterVersion,
)
from tenants.errors import Conflict
from tenants.models import Tenant

# Of one adapter, until some are deleted: its row of the snapshot names each that is ready.
MAX_VERSIONS: Final = 100


@dataclass(frozen=True, kw_only=True)
class AdapterBounds:
    """What one more version of a tenant's may come to. `stored_bytes` is what is left."""

    rank: int
    stored_bytes: int


def locked_tenant(tenant_id: uuid.UUID) -> Tenant:
    """Lock the tenant until the transaction ends: of two that add at the same time the second
    counts the first."""
    tenants = Tenant.objects.select_for_update(no_key=True, of=("self",)).select_related("tier")
    return tenants.get(pk=tenant_id)


def bounds_of(tenant: Tenant, *, besides: AdapterVersion | None = None) -> AdapterBounds:
    """Return what is left of the tenant's bounds, `besides` a version that is not counted."""
    used = used_bytes(tenant, besides=besides)
    left = max(0, tenant.tier.max_adapter_bytes - used)
    return AdapterBounds(rank=tenant.tier.max_adapter_rank, stored_bytes=left)


def used_bytes(tenant: Tenant, *, besides: AdapterVersion | None = None) -> int:
    """Return what the tenant's versions take of the store: what is stored of those that are ready
    or archived, what others may come to."""
    versions = AdapterVersion.objects.filter(tenant=tenant, state__in=STORED_STATES)
    if besides is not None:
        versions = versions.exclude(pk=besides.pk)
    taken = Case(
        When(state__in=HELD_STATES, then=F("stored_bytes")),
        default=F("upload_bytes"),
    )
    return int(versions.aggregate(taken=Sum(taken))["taken"] or 0)


def check_adapter_count(tenant: Tenant) -> None:
    """Raises `Conflict` where the tenant has as many adapters as its tier allows."""
    most = tenant.tier.max_adapters
    if Adapter.objects.filter(tenant=tenant, archived_at=None).count() >= most:
        raise Conflict(
            f"Tier {tenant.tier.name} allows {most} adapters, and there are as many; archive one "
            "first, or ask the operator for another tier.",
            code="too_many_adapters",
        )


def check_room(tenant: Tenant, adapter: Adapter, upload_bytes: int) -> None:
    """Raises `Conflict` where one more version of so many bytes is too much."""
    kept = adapter.versions.exclude(state__in=(AdapterState.DELETED, AdapterState.REFUSED))
    if kept.count() >= MAX_VERSIONS:
        raise Conflict(
            f"{adapter.name} has {MAX_VERSIONS} versions; delete some that answer nobody first.",
            code="too_many_versions",
        )
    most = tenant.tier.max_adapter_versions
    named = AdapterVersion.objects.filter(
        tenant=tenant, adapter__archived_at=None, state__in=(*IN_PROGRESS, AdapterState.READY)
    )
    if named.count() >= most:
        raise Conflict(
            f"Tier {tenant.tier.name} allows {most} versions of all adapters together, and there "
            "are as many; archive or delete some that answer nobody first.",
            code="too_many_adapter_versions",
        )
    left = bounds_of(tenant).stored_bytes
    if upload_bytes > left:
        raise Conflict(
            f"Tier {tenant.tier.name} allows {tenant.tier.max_adapter_bytes} bytes of adapters, of "
            f"which {left} are left; this one may take {upload_bytes}. Delete versions that answer "
            "nobody first.",
            code="adapter_storage_full",
        )
