"""Versions that workers get before anybody asks for them, so that what they do is known and the
first request finds them in memory."""

from typing import Final

from django.core.cache import cache
from redis import Redis

from gpu_workers.protocol import functions, keys

# One new version of a pool in so many seconds: each may take the place of what was not used for
# longest in a worker's memory, so whoever uploads a thousand drives others out no faster than that.
PREFETCH_EVERY_SECONDS: Final = 2


def prefetch(redis: Redis, pool: str, opaque_name: str) -> bool:
    """Have one of a pool's workers get a version, unless another was got just now, or workers have
    it; return whether that was asked for. A worker that is full of what requests use leaves it."""
    if not cache.add(gate_of(pool), 1, timeout=PREFETCH_EVERY_SECONDS):
        return False
    redis.fcall(functions.PREFETCH, 1, keys.pool_prefix(pool), opaque_name)
    return True


def gate_of(pool: str) -> str:
    """Return the key in the cache that is there while no version of a pool is prefetched."""
    return f"adapter-prefetched:{pool}"
