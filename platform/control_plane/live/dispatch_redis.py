"""The dispatch Redis as panels ask it: one that does not answer soon is away."""

from functools import cache
from typing import Final

from django.conf import settings
from redis import ConnectionPool, Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from gpu_workers.protocol.redis_url import connect

_SECONDS: Final = 2.0


def dashboards_redis() -> Redis:
    """Return a client for one reading; its connections are kept for the next one."""
    return Redis(connection_pool=_pool(settings.PENSTOCK_DISPATCH_REDIS_URL))


@cache
def _pool(url: str) -> ConnectionPool:
    client = connect(
        url,
        socket_timeout=_SECONDS,
        socket_connect_timeout=_SECONDS,
        retry=Retry(NoBackoff(), 0),  # the next reading is the retry
    )
    return client.connection_pool
