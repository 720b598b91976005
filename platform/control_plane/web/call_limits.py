"""How often somebody may ask a minute. Counted by django-ratelimit, as sign-ins are: in the cache's
Redis, together for all processes, in windows of a minute."""

import structlog
from django.http import HttpRequest
from django_ratelimit.core import get_usage
from redis.exceptions import RedisError

log = structlog.get_logger(__name__)


def seconds_to_wait(request: HttpRequest, group: str, who: str, per_minute: int) -> int | None:
    """Count a call; return after how many seconds the next window begins if it was one too many.
    None if not, and also where nothing can be counted: a limit keeps one from slowing others down,
    and no Redis for it is no reason to refuse all of them."""
    try:
        usage = get_usage(
            request,
            group=group,
            key=lambda _group, _request: who,
            rate=f"{per_minute}/m",
            increment=True,
        )
    except RedisError as error:
        log.warning("call not counted", error=type(error).__name__)
        return None
    # A count may run out between two commands.
    if usage is None or usage["time_left"] < 0 or not usage["should_limit"]:
        return None
    return max(1, int(usage["time_left"]))
