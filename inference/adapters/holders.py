"""How many workers have a version, as they say themselves."""

from collections.abc import Sequence

import structlog
from redis.exceptions import RedisError

from gpu_workers.protocol import keys
from gpu_workers.protocol.adapters import AdapterLevel
from inference.models.adapter import AdapterVersion
from inference.usage.collector import dispatch_redis

log = structlog.get_logger(__name__)


def holders_of(pool: str, versions: Sequence[AdapterVersion]) -> dict[int, int] | None:
    """Return on how many of a pool's workers each version is, on disk or nearer, by its number;
    None while nobody can tell."""
    if not versions:
        return {}
    try:
        with dispatch_redis() as redis, redis.pipeline(transaction=False) as pipeline:
            for version in versions:
                key = keys.pool_adapter_workers(pool, version.opaque_name)
                # Below stands one that is to get it.
                pipeline.zcount(key, int(AdapterLevel.DISK), "+inf")
            counts = pipeline.execute()
    except RedisError as error:
        log.warning("adapter_holders_unknown", pool=pool, reason=repr(error))
        return None
    return {version.number: count for version, count in zip(versions, counts, strict=True)}
