"""The resync of a Redis that has lost everything, before budgets are rebuilt.

Workers keep in their outboxes what PostgreSQL has not acknowledged, and append it again as soon as
they are back; gateways reserve again what their open requests may cost. Budgets come from
PostgreSQL, so all of that is ingested first: otherwise a tenant could spend once more what it
spent in the last moments.
"""

from datetime import timedelta
from typing import Final, cast

import structlog
from django.utils import timezone
from redis import Redis

from gpu_workers.protocol import keys
from inference.models import Gateway, Worker
from inference.redis_functions import LIBRARIES, library_text
from inference.usage.collector import UsageCollector
from tenants.isolation.scoping import operator_scope
from tenants.policy.writer import RestoreNotReady

log = structlog.get_logger(__name__)

# Longer than a worker takes to find a Redis that is back, and to send it what a minute of an outage
# of PostgreSQL leaves in an outbox.
TIMEOUT_SECONDS: Final = 10.0
_LOSS_REMEMBERED_SECONDS: Final = 600
# The lease, the pause between two copies of the registry, and an outage of some length.
LIVE_WITHIN: Final = timedelta(seconds=60)


def resync_lost_redis(redis: Redis) -> None:
    """Ingest what workers and gateways that were live of late have sent again. Raises
    `RestoreNotReady` until each of them has, for `TIMEOUT_SECONDS` at most; then all of it is in
    PostgreSQL, or reserved."""
    load_missing_functions(redis)
    missing = {*_missing_workers(redis), *_missing_gateways(redis)}
    if missing and _seconds_since_loss(redis) < TIMEOUT_SECONDS:
        raise RestoreNotReady
    if missing:
        log.warning("resync_incomplete", missing=sorted(missing))
    collector = UsageCollector(redis)
    if collector.has_backlog():
        log.warning("usage_ingested_before_budgets", entries=collector.drain())


def load_missing_functions(redis: Redis) -> int:
    """Load the libraries that a Redis that restarted empty lacks, without which workers cannot
    register; return how many."""
    missing = [each for each in LIBRARIES if not redis.function_list(library=each.name)]
    for library in missing:
        redis.function_load(library_text(library), replace=True)
    return len(missing)


def _missing_workers(redis: Redis) -> list[str]:
    with operator_scope("workers of late"):
        workers = Worker.objects.filter(last_seen_at__gt=timezone.now() - LIVE_WITHIN)
        live = set(workers.values_list("pool", "name"))
    resynced = {pool: _members(redis, keys.pool_workers_resynced(pool)) for pool, _ in live}
    return [f"worker {name} of {pool}" for pool, name in live if name not in resynced[pool]]


def _missing_gateways(redis: Redis) -> list[str]:
    with operator_scope("gateways of late"):
        gateways = Gateway.objects.filter(last_seen_at__gt=timezone.now() - LIVE_WITHIN)
        live = set(gateways.values_list("gateway_id", flat=True))
    resynced = _members(redis, keys.gateways_resynced())
    return [f"gateway {gateway_id}" for gateway_id in live - resynced]


def _members(redis: Redis, key: str) -> set[str]:
    return {member.decode() for member in cast(set[bytes], redis.smembers(key))}


def _seconds_since_loss(redis: Redis) -> float:
    """Return the seconds since any process first asked this of this Redis, by its clock."""
    redis.set(keys.policy_lost_at(), "1", nx=True, ex=_LOSS_REMEMBERED_SECONDS)
    left = redis.pttl(keys.policy_lost_at()) / 1000
    return abs(_LOSS_REMEMBERED_SECONDS - left)
