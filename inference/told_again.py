"""What a Redis that has lost everything is told again, before budgets are rebuilt.

Workers keep in their outboxes what PostgreSQL has not acknowledged, and append it again as soon as
they are back. Budgets come from PostgreSQL, so all of that is taken in first: otherwise a tenant
could spend once more what it spent in the last moments.
"""

import time
from datetime import timedelta
from typing import Final, cast

import structlog
from django.utils import timezone
from redis import Redis

from gpu_workers.protocol import keys
from inference.metering import UsageCollector
from inference.models import Worker
from inference.redis_functions import ADMISSION, DISPATCH, library_text
from tenants.policy import NotYet
from tenants.scoping import operator_scope

log = structlog.get_logger(__name__)

# Longer than a worker takes to find a Redis that is back, and to tell it what a minute of an outage
# of PostgreSQL leaves in an outbox.
PATIENCE_SECONDS: Final = 10.0
# The lease, the pause between two copies of the registry, and an outage of some length.
LIVE_BEFORE: Final = timedelta(seconds=60)
_LIBRARIES: Final = {keys.ADMISSION_LIBRARY: ADMISSION, keys.DISPATCH_LIBRARY: DISPATCH}


def take_in_what_was_lost(redis: Redis) -> None:
    """Raises `NotYet` until every worker that was live of late has told what it holds, or the
    patience with them is at its end. Then all of it is in PostgreSQL."""
    _load_lost_functions(redis)
    silent = _live_of_late() - _told(redis)
    if silent and _seconds_since_loss(redis) < PATIENCE_SECONDS:
        raise NotYet
    if silent:
        log.warning("workers_did_not_tell_again", workers=sorted(name for _, name in silent))
    collector = UsageCollector(redis)
    if collector.has_backlog():
        log.warning("usage_taken_in_before_budgets", entries=collector.drain())


def _load_lost_functions(redis: Redis) -> None:
    """Workers cannot register without them."""
    for name, files in _LIBRARIES.items():
        if not redis.function_list(library=name):
            redis.function_load(library_text(files), replace=True)


def _live_of_late() -> set[tuple[str, str]]:
    with operator_scope("workers of late"):
        workers = Worker.objects.filter(last_seen_at__gt=timezone.now() - LIVE_BEFORE)
        return set(workers.values_list("pool", "name"))


def _told(redis: Redis) -> set[tuple[str, str]]:
    pools = {pool.decode() for pool in cast(set[bytes], redis.smembers(keys.known_pools()))}
    return {
        (pool, name.decode())
        for pool in pools
        for name in cast(set[bytes], redis.smembers(keys.pool_resent(pool)))
    }


def _seconds_since_loss(redis: Redis) -> float:
    """Since this was first asked of this Redis, by whichever process."""
    redis.set(keys.policy_lost_at(), str(time.time()), nx=True, ex=600)
    return time.time() - float(cast(bytes, redis.get(keys.policy_lost_at())))
