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
from inference.pools import alone
from inference.redis_functions import LIBRARIES, library_text
from inference.usage.collector import UsageCollector
from tenants.isolation.scoping import operator_scope
from tenants.policy.writer import RestoreNotReady

log = structlog.get_logger(__name__)

# Longer than a worker takes to find a Redis that is back, and to send it what a minute of an outage
# of PostgreSQL leaves in an outbox.
TIMEOUT_SECONDS: Final = 10.0
# To take in half a million entries that a longer outage has left there.
BACKLOG_TIMEOUT_SECONDS: Final = 120.0
_LOSS_REMEMBERED_SECONDS: Final = 600
# The lease, the pause between two copies of the registry, and an outage of some length.
LIVE_WITHIN: Final = timedelta(seconds=60)


def resync_lost_redis(redis: Redis) -> None:
    """Ingest what workers and gateways that were live of late have sent again. Raises
    `RestoreNotReady` until each of them has, for `TIMEOUT_SECONDS` at most, or for
    `BACKLOG_TIMEOUT_SECONDS` while one of them has more than a stream has room for; then all of it
    is in PostgreSQL, or reserved."""
    load_missing_functions(redis)
    collector = UsageCollector(redis)
    missing = {*_missing_workers(redis), *_missing_gateways(redis)}
    if missing and collector.is_any_withheld():
        # Room for the next of it, should no collector be making any.
        log.info("resync_makes_room", entries=collector.drain())
        timeout_seconds = BACKLOG_TIMEOUT_SECONDS
    else:
        timeout_seconds = TIMEOUT_SECONDS
    if missing and _seconds_since_loss(redis) < timeout_seconds:
        raise RestoreNotReady
    if missing:
        log.warning("resync_incomplete", missing=sorted(missing))
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
    missing: list[str] = []
    for pool in {pool for pool, _ in live}:
        with alone(pool):
            resynced = _members(redis, keys.pool_workers_resynced(pool))
            names = {name for of_pool, name in live if of_pool == pool}
            missing += [f"worker {name} of {pool}" for name in names - resynced]
    return missing


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
