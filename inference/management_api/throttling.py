"""How often one caller may call, as DRF asks. Counted by django-ratelimit, as sign-ins are: in the
cache's Redis, together for all processes, in windows of a minute. DRF's own throttles keep a list
of all calls of the window."""

from typing import Any, Final, cast

import structlog
from django.conf import settings
from django.http import HttpRequest
from django_ratelimit.core import get_usage
from redis.exceptions import RedisError
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from inference.management_api.callers import Caller

# Times what one caller may: a tenant may have thousands of keys and members.
_CALLERS_OF_A_TENANT: Final = 10

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


class _Throttle(BaseThrottle):
    """Counts calls in one group, by what `counted` says."""

    _wait: int | None = None

    def counted(self, request: Request, view: Any) -> tuple[str, int] | None:
        """Return as whose a call counts, and how many there may be a minute; None: it counts
        as nobody's."""
        raise NotImplementedError

    def allow_request(self, request: Request, view: Any) -> bool:
        if (counted := self.counted(request, view)) is None:
            return True
        self._wait = seconds_to_wait(request._request, "management API", *counted)
        return self._wait is None

    def wait(self) -> int | None:
        """Return after how many seconds the next window begins."""
        return self._wait


class CallerThrottle(_Throttle):
    """Bounds the calls of a person, or of an API key, a minute. Whoever is not known has no calls:
    they are refused, and attempts to sign in have limits of their own."""

    def counted(self, request: Request, view: Any) -> tuple[str, int] | None:
        caller = cast("Caller | None", request.auth)
        if caller is None:
            return None
        actor = caller.as_actor()
        return f"{actor.kind}:{actor.id}", settings.PENSTOCK_API_CALLS_PER_MINUTE


class TenantThrottle(_Throttle):
    """Bounds the calls of all who may call something of a tenant, together. For calls that have
    been let in there, so that nobody uses another tenant's up."""

    def counted(self, request: Request, view: Any) -> tuple[str, int] | None:
        most = _CALLERS_OF_A_TENANT * settings.PENSTOCK_API_CALLS_PER_MINUTE
        return f"tenant:{view.tenant_id}", most
