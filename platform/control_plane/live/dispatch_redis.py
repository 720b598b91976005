"""The dispatch Redis as panels ask it: one that does not answer soon is away."""

from typing import Final

from django.conf import settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from gpu_workers.protocol.redis_url import connect

_SECONDS: Final = 2.0


def dashboards_redis() -> Redis:
    """Open a client for one reading."""
    return connect(
        settings.PENSTOCK_DISPATCH_REDIS_URL,
        socket_timeout=_SECONDS,
        socket_connect_timeout=_SECONDS,
        retry=Retry(NoBackoff(), 0),  # the next reading is the retry
    )
