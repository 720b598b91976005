"""The control plane's connection to the dispatch Redis: policy, spend and uses of keys."""

from functools import cache

from django.conf import settings
from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from gpu_workers.protocol.redis_url import connect


def policy_redis() -> Redis:
    """Return the client of this process; it connects when it is first used."""
    return _client(settings.PENSTOCK_DISPATCH_REDIS_URL)


@cache
def _client(url: str) -> Redis:
    # One try: whoever saves a change in the admin must not wait out a Redis that is down.
    return connect(url, socket_timeout=5, socket_connect_timeout=2, retry=Retry(NoBackoff(), 1))
