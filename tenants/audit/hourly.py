"""What anybody could have recorded again and again is on record once an hour: the log is kept for
ever."""

from typing import Final

from django.core.cache import cache
from redis.exceptions import RedisError

_NOTED_SECONDS: Final = 3600


def is_first_in_an_hour(what: str) -> bool:
    """Return whether it is; also where nothing can be counted."""
    try:
        return bool(cache.add(f"noted:{what}", 1, timeout=_NOTED_SECONDS))
    except RedisError:
        return True
