"""Adapters as the policy snapshot has them."""

from collections.abc import Collection, Iterator
from itertools import groupby
from typing import Final

from gpu_workers.protocol.policy import AdapterPolicy
from inference.models.adapter import AdapterState, AdapterVersion

_CHUNK: Final = 2000


def adapter_policies(prefixes: Collection[str] | None) -> Iterator[AdapterPolicy]:
    """Yield the adapters that have a version that is ready: all, or those of the tenants whose slug
    and a slash are given. Runs in an `operator_scope`."""
    ready = AdapterVersion.objects.filter(state=AdapterState.READY, adapter__archived_at=None)
    if prefixes is not None:
        slugs = [prefix.removesuffix("/") for prefix in prefixes]
        ready = ready.filter(adapter__tenant__slug__in=slugs)
    # By id: by "adapter" they would come in its order, which is by slug, and two tenants' adapters
    # of one name among each other.
    rows = ready.select_related("adapter__tenant").order_by("adapter_id", "number")
    # One adapter's versions share the adapter's row, as the first has it.
    for _, versions in groupby(rows.iterator(chunk_size=_CHUNK), key=lambda row: row.adapter_id):
        found = list(versions)
        yield found[0].adapter.to_policy(found)
