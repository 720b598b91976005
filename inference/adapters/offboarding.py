"""A tenant's adapters as they leave with it: told in its export, and gone when it is closed; and
what fsck asks of them."""

import uuid
from collections.abc import Iterable
from dataclasses import asdict
from functools import partial
from typing import Any, Final

from django.db import transaction

from inference.adapters.sources import address_problems
from inference.adapters.storage import storage_of
from inference.blobs.sweep import delete_blobs
from inference.models.adapter import Adapter, AdapterVersion
from inference.room import Room
from tenants import fsck
from tenants.models import Tenant
from tenants.offboarding.export import rows_of
from tenants.permissions import Permission

# Below which all that is stored of adapters lies in the blob store.
ADAPTERS: Final = "adapters"


def adapter_blobs() -> Iterable[tuple[str, int]]:
    """Return the paths of the blobs that versions have, and their bytes; within an operator's
    scope."""
    return AdapterVersion.objects.exclude(path="").values_list("path", "stored_bytes")


def exported_storage(tenant_id: uuid.UUID) -> Iterable[dict[str, Any]]:
    """Return what the tenant keeps in the store of blobs, as one record."""
    tenant = Tenant.objects.select_related("tier").get(pk=tenant_id)
    return [asdict(storage_of(tenant))]


def delete_adapters(tenant: Tenant) -> None:
    """Delete a tenant's adapters, for `close_tenant`; usage goes on to know them by name. What is
    stored is nobody's from then on, sealed under a key that goes with the tenant, and deleted once
    that is committed."""
    versions = AdapterVersion.objects.filter(tenant=tenant).exclude(path="")
    paths = list(versions.values_list("path", flat=True))
    transaction.on_commit(partial(delete_blobs, paths))
    Adapter.objects.filter(tenant=tenant).delete()


ROOM: Final = Room(
    exports={
        "adapter": (rows_of(Adapter), Permission.VIEW_ADAPTERS),
        "adapter_version": (rows_of(AdapterVersion), Permission.VIEW_ADAPTERS),
        "storage": (exported_storage, Permission.VIEW_ADAPTERS),
    },
    erasers=(delete_adapters,),
    blobs={ADAPTERS: adapter_blobs},
    checks={"adapter addresses": fsck.whole(address_problems)},
)
