"""Loads of adapters by workers, put on record, and summed up for reports.

Workers count in their pool's Redis, ever since it began. What that has beyond the last look is new:
so nothing is counted twice, and of a Redis that begins anew only what was not looked at is lost.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Final, cast

from django.db.models import Sum
from redis import Redis

from gpu_workers.protocol import keys
from inference.adapters.worker_counts import may_be_held
from inference.models.adapter import AdapterVersion
from inference.models.adapter_loads import AdapterLoads
from tenants.isolation.scoping import operator_scope
from tenants.models import Tenant

# Of one pool, in one look; the rest waits for the next.
MOST_LOADED: Final = 1_000


@dataclass(frozen=True, kw_only=True)
class Loads:
    """How often, and for how long engines stood still."""

    count: int
    seconds: float


def loads_of(tenant: Tenant | None, first: date, last: date) -> Loads:
    """Return the loads of a tenant's adapters on these days; without one of everybody's, in an
    operator's scope."""
    only = {} if tenant is None else {"tenant": tenant}
    sums = AdapterLoads.objects.filter(**only, day__gte=first, day__lte=last).aggregate(
        loads=Sum("loads"), us=Sum("load_us")
    )
    return Loads(count=int(sums["loads"] or 0), seconds=int(sums["us"] or 0) / 1e6)


def note_loads(redis: Redis, pool: str, now: datetime | None = None) -> int:
    """Put on record what a pool's workers have loaded since the last look; return of how many
    versions. In no scope."""
    day = (now or datetime.now(UTC)).astimezone(UTC).date()
    key = keys.pool_loaded(pool)
    names = cast(list[bytes], redis.srandmember(key, MOST_LOADED))
    if not names:
        return 0
    # Before it is read: what is loaded meanwhile is looked at again.
    redis.srem(key, *names)
    try:
        counts = _counts(redis, pool, [name.decode(errors="replace") for name in names])
        with operator_scope("loads of adapters"):
            versions = _versions(pool, counts)
            for version in versions:
                _note(version, day, *counts[version.opaque_name])
    except BaseException:
        redis.sadd(key, *names)
        raise
    going_on = {each.opaque_name for each in versions if may_be_held(each)}
    if over := [name for name in counts if name not in going_on]:
        redis.hdel(keys.pool_loads(pool), *_fields(over))
    return len(versions)


def _counts(redis: Redis, pool: str, names: list[str]) -> dict[str, tuple[int, int]]:
    found = [int(each or 0) for each in redis.hmget(keys.pool_loads(pool), _fields(names))]
    return dict(zip(names, zip(found[::2], found[1::2], strict=True), strict=True))


def _fields(names: list[str]) -> list[str]:
    return [f"{kind}:{name}" for name in names for kind in ("n", "us")]


def _versions(pool: str, names: Iterable[str]) -> list[AdapterVersion]:
    """Return those that the pool serves: a worker is believed of no other."""
    rows = AdapterVersion.objects.filter(adapter__model__pool=pool, opaque_name__in=list(names))
    return list(rows.only("tenant_id", "opaque_name", "state"))


def _note(version: AdapterVersion, day: date, counted: int, counted_us: int) -> None:
    rows = AdapterLoads.objects.filter(tenant_id=version.tenant_id, opaque_name=version.opaque_name)
    last = rows.order_by("-day").first()
    before, before_us = (last.counted, last.counted_us) if last else (0, 0)
    if counted < before or counted_us < before_us:
        before, before_us = 0, 0  # that Redis was lost
    row, _ = rows.get_or_create(
        tenant_id=version.tenant_id,
        opaque_name=version.opaque_name,
        day=day,
        defaults={"loads": 0, "load_us": 0, "counted": 0, "counted_us": 0},
    )
    row.loads += counted - before
    row.load_us += counted_us - before_us
    row.counted, row.counted_us = counted, counted_us
    row.save(update_fields=["loads", "load_us", "counted", "counted_us"])
