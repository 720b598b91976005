"""What the operator pays for GPUs: how long workers lived, and what that cost."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from django.db import connection

from tenants.billing.models import PoolCost, PoolHour

_HOUR_MS: Final = 3_600_000

_ADD: Final = """
INSERT INTO billing_poolhour AS known (pool, hour, worker_ms)
SELECT pool, date_trunc('hour', %s::timestamptz, 'UTC'), lived
FROM unnest(%s::text[], %s::bigint[]) AS given(pool, lived)
ON CONFLICT (pool, hour) DO UPDATE SET worker_ms = known.worker_ms + excluded.worker_ms
"""


def add_worker_time(lived_ms: Mapping[str, int], now: datetime) -> None:
    """Add to each pool's hours how long its workers lived, in milliseconds up to now."""
    if lived_ms:
        pools = sorted(lived_ms)
        with connection.cursor() as cursor:
            cursor.execute(_ADD, [now, pools, [lived_ms[pool] for pool in pools]])


def hour_costs(begin: datetime, end: datetime) -> dict[tuple[str, datetime], tuple[int, int]]:
    """Return by pool and hour the GPU milliseconds of its workers and what they cost in
    nano-dollars, a part of one left out, for the hours from `begin` to before `end`, each at the
    cost that applied when it began. Pools without a cost are left out."""
    costs: defaultdict[str, list[PoolCost]] = defaultdict(list)
    for cost in PoolCost.objects.all():
        costs[cost.pool].append(cost)
    found: dict[tuple[str, datetime], tuple[int, int]] = {}
    for hour in PoolHour.objects.filter(hour__gte=begin, hour__lt=end):
        held = next((cost for cost in costs[hour.pool] if _holds(cost, hour)), None)
        if held is not None:
            gpu_ms = hour.worker_ms * held.gpus_per_worker
            nanos = gpu_ms * held.micros_per_gpu_hour * 1000 // _HOUR_MS
            found[hour.pool, hour.hour] = gpu_ms, nanos
    return found


def _holds(cost: PoolCost, hour: PoolHour) -> bool:
    """Return whether a cost applies to an hour: to the whole of the hour in which it was
    entered."""
    begins = cost.effective_from.replace(minute=0, second=0, microsecond=0)
    return begins <= hour.hour and (
        cost.effective_until is None or hour.hour < cost.effective_until
    )
