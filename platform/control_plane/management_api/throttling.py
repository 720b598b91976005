"""How often one caller may call, as DRF asks. Counted by django-ratelimit, as sign-ins are: in the
cache's Redis, together for all processes, in windows of a minute. DRF's own throttles keep a list
of all calls of the window."""

from typing import Any, Final, cast

import structlog
from django.conf import settings
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from control_plane.management_api.callers import Caller
from control_plane.web.call_limits import seconds_to_wait

# Times what one caller may: a tenant may have thousands of keys and members.
_CALLERS_OF_A_TENANT: Final = 10

log = structlog.get_logger(__name__)


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
