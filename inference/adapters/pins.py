"""Pinned adapters: which of them a tier has kept at hand, and what workers are told of them."""

import uuid
from collections import defaultdict
from collections.abc import Iterator
from itertools import groupby, islice
from typing import cast

import structlog
from django.db import DatabaseError, transaction
from django.db.models import F, Q
from redis import Redis
from redis.exceptions import RedisError

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.adapters import AdapterPins
from inference.models.adapter import Adapter, AdapterState, AdapterVersion
from inference.models.catalog import Pool
from inference.pools import alone
from inference.usage.collector import dispatch_redis
from tenants.errors import Conflict
from tenants.isolation.scoping import operator_scope
from tenants.models import Tenant

log = structlog.get_logger(__name__)


def check_pin_count(tenant: Tenant) -> None:
    """Raises `Conflict` where the tenant has pinned as many adapters as its tier allows."""
    most = tenant.tier.max_pinned_adapters
    if Adapter.objects.filter(tenant=tenant, pinned_at__isnull=False).count() >= most:
        raise Conflict(
            f"Tier {tenant.tier.name} allows {most} pinned adapters, and there are as many; unpin "
            "one first, or ask the operator for another tier.",
            code="too_many_pinned_adapters",
        )


def honoured_pins(tenant: Tenant) -> set[uuid.UUID]:
    """Return the ids of the adapters whose pins count: those that were pinned first, as many as the
    tier allows today."""
    pinned = Adapter.objects.filter(tenant=tenant, pinned_at__isnull=False)
    first = pinned.order_by("pinned_at", "pk").values_list("pk", flat=True)
    return set(first[: tenant.tier.max_pinned_adapters])


def pins_by_pool() -> dict[str, AdapterPins]:
    """Return what each pool's workers are to keep at hand, within an operator's scope: the versions
    that traffic of pinned adapters points at, unless their tenant is suspended. A tenant's places
    begin with the versions that answer most, in the order of its pins; canaries follow."""
    places: dict[str, dict[str, int]] = defaultdict(dict)
    for _, versions in groupby(_pinned_versions(), key=lambda version: version.tenant_id):
        taken: dict[str, int] = defaultdict(int)
        mine = list(versions)
        for is_canary in (False, True):
            for version in mine:
                of_pool = places[version.adapter.model.pool_id]
                if (version.number != version.adapter.main) is is_canary and (
                    version.opaque_name not in of_pool
                ):
                    taken[version.adapter.model.pool_id] += 1
                    of_pool[version.opaque_name] = taken[version.adapter.model.pool_id]
    return {pool: AdapterPins(places=of_pool) for pool, of_pool in places.items()}


def write_pins(redis: Redis) -> None:
    """Tell every pool's workers what to keep at hand. Runs in an operator's scope, and bears
    repetition; of two at once an older state may stay, until the next sync."""
    pins = pins_by_pool()
    with redis.pipeline(transaction=False) as pipeline:
        for pool in Pool.objects.values_list("name", flat=True):
            if pool in pins:
                pipeline.set(keys.pool_adapter_pins(pool), codec.encode(pins[pool]))
            else:
                pipeline.delete(keys.pool_adapter_pins(pool))
        pipeline.execute()


def publish_pins_after_commit() -> None:
    """Tell workers as soon as an adapter's pin, or what it points at, is on record; where that
    fails, the next sync does it."""
    transaction.on_commit(_publish)


def pin_problems(redis: Redis) -> Iterator[str]:
    """Find, for fsck, pools whose workers keep at hand what is not pinned, or not what is."""
    pins = pins_by_pool()
    for pool in Pool.objects.order_by("name").values_list("name", flat=True):
        said = {"": 0}  # of a row that cannot be read
        with alone(pool):
            row = redis.get(keys.pool_adapter_pins(pool))
            said = {} if row is None else codec.decode_adapter_pins(cast(bytes, row)).places
        if said != (pins[pool].places if pool in pins else {}):
            yield f"Pool {pool}: workers have another list of pinned adapters; see that beat runs."


def _pinned_versions() -> Iterator[AdapterVersion]:
    """Yield the versions that honoured pins point at, by tenant, in the order of the pins."""
    pinned = Adapter.objects.filter(
        pinned_at__isnull=False, tenant__closed_at=None, tenant__is_suspended=False
    )
    in_order = pinned.order_by("tenant_id", "pinned_at", "pk").values_list(
        "pk", "tenant_id", "tenant__tier__max_pinned_adapters"
    )
    honoured = [
        row[0]
        for (_, most), rows in groupby(in_order, key=lambda row: row[1:])
        for row in islice(rows, most)
    ]
    answering = Q(number=F("adapter__main")) | Q(number=F("adapter__canary"))
    versions = AdapterVersion.objects.filter(
        answering, state=AdapterState.READY, adapter__in=honoured
    )
    found = versions.select_related("adapter__model").order_by(
        "tenant_id", "adapter__pinned_at", "adapter_id", "number"
    )
    return found.iterator(chunk_size=2000)


def _publish() -> None:
    try:
        with dispatch_redis() as redis, operator_scope("pinned adapters"):
            write_pins(redis)
    except (RedisError, DatabaseError) as error:
        log.warning("adapter_pins_not_published", reason=str(error))
