"""How often one caller may call, as DRF asks. Counted by django-ratelimit, as sign-ins are: in the
cache's Redis, together for all processes, in windows of a minute. DRF's own throttles keep a list
of all calls of the window."""

from typing import Any, cast

import structlog
from django.conf import settings
from django_ratelimit.core import get_usage
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from inference.management_api.callers import Caller

log = structlog.get_logger(__name__)


class CallerThrottle(BaseThrottle):
    """Bounds the calls of a person, or of an API key, a minute. Whoever is not known has no calls:
    they are refused, and attempts to sign in have limits of their own."""

    _wait: int | None = None

    def allow_request(self, request: Request, _view: Any) -> bool:
        """Return whether there were not too many yet, and also where nothing can be counted: the
        limit keeps one caller from slowing others down, and no Redis for it is no reason to refuse
        all of them."""
        caller = cast("Caller | None", request.auth)
        if caller is None:
            return True
        actor = caller.as_actor()
        try:
            usage = get_usage(
                request._request,
                group="management API",
                key=lambda _group, _request: f"{actor.kind}:{actor.id}",
                rate=f"{settings.PENSTOCK_API_CALLS_PER_MINUTE}/m",
                increment=True,
            )
        except RedisError as error:
            log.warning("call not counted", error=type(error).__name__)
            return True
        if usage is None or usage["time_left"] < 0:
            # The count ran out between two commands.
            return True
        self._wait = max(1, usage["time_left"])
        return not usage["should_limit"]

    def wait(self) -> int | None:
        """Return after how many seconds the next window begins."""
        return self._wait
