"""Which ASGI application answers a path, and the lifespan of them all.

`planes/paths.py` says which plane a path is of. /v1/ goes to the gateway without Django's
middleware, database or threads in its way, but for uploads, which are Django's behind a gate of
their own; /ws/ to Channels; probes to the status endpoints; all else to Django. Before any of them
stands the edge, which says who is calling; in clear text only what takes no credential is answered,
and nothing that brings two.
"""

import gc
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, Protocol

from control_plane.edge import (
    CLEAR_TEXT,
    TWO_CREDENTIALS,
    Edge,
    bears_credential,
    has_two_credentials,
    refuse,
)
from control_plane.planes.elsewhere import Elsewhere
from control_plane.planes.paths import UPLOADS, Plane, is_below, plane_of
from control_plane.status import endpoints

# Pages and files for everybody: all that strangers may read in clear text.
_OPEN: Final = ("/docs/", "/static/")
# A credential stands in the address, or comes from a program, which is not to follow a redirect.
_NEVER_LED: Final = ("/api/", "/blobs/", "/sso/")

_GATEWAYS: Final = Elsewhere(Plane.GATEWAY)
_MANAGED: Final = Elsewhere(Plane.MANAGEMENT)

# Scope, receive and send: what they hold is the servers' business, and Django's.
Application = Callable[[Any, Any, Any], Awaitable[None]]


class Startable(Protocol):
    """Something that lives as long as the process serves."""

    async def startup(self) -> None: ...

    async def shutdown(self) -> None: ...


class Dispatcher:
    """The ASGI application of a process. `uploads` and `django` are None for a gateway alone,
    `gateway` and `websocket` for a management process: paths of the other plane are then a 404 that
    says so. With `has_https` Django leads browsers from http to https, those that bring nothing."""

    def __init__(
        self,
        *,
        edge: Edge,
        lifetime: Startable,
        status: Application,
        gateway: Application | None = None,
        websocket: Application | None = None,
        uploads: Application | None = None,
        django: Application | None = None,
        has_https: bool = False,
    ) -> None:
        self._edge = edge
        self._lifetime = lifetime
        self._gateway = gateway
        self._status = status
        self._websocket = websocket
        self._uploads = uploads
        self._django = django
        self._has_https = has_https

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        is_clear_text = self._edge.take_in(scope)
        application = self._application(scope)
        if is_clear_text and not self._may_be_read(scope, application):
            application = partial(refuse, CLEAR_TEXT)
        elif has_two_credentials(scope):
            application = partial(refuse, TWO_CREDENTIALS)
        await application(scope, receive, send)

    def _application(self, scope: Any) -> Application:
        if scope["type"] == "websocket":
            return self._connect
        path = scope["path"]
        if path in endpoints.PATHS:
            return self._status
        if plane_of(path) is Plane.GATEWAY:
            return self._gateway or _GATEWAYS
        return (self._uploads if is_below(path, UPLOADS) else self._django) or _MANAGED

    def _may_be_read(self, scope: Any, application: Application) -> bool:
        """Return whether anybody may read a request and its answer."""
        if application == self._status:
            return not bears_credential(scope)
        if application != self._django or scope["method"] not in ("GET", "HEAD"):
            return False
        path = scope["path"]
        is_open = path == "/" or path.startswith(_OPEN)
        is_led = self._has_https and not path.startswith(_NEVER_LED)
        return (is_open or is_led) and not bears_credential(scope)

    async def _connect(self, scope: Any, receive: Any, send: Any) -> None:
        is_stream = scope["path"].startswith("/ws/")
        if is_stream and self._websocket is not None:
            await self._websocket(scope, receive, send)
        elif is_stream and self._gateway is None:
            await _GATEWAYS(scope, receive, send)
        else:
            await receive()
            # Before it was accepted, a close is answered as 403.
            await send({"type": "websocket.close", "code": 4404, "reason": "no such path"})

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()
        try:
            await self._lifetime.startup()
        except Exception as error:  # noqa: BLE001 - the server logs the message and ends
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        # From here on the garbage collector walks what requests leave behind, not all of Django.
        gc.collect()
        gc.freeze()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        try:
            await self._lifetime.shutdown()
        except Exception as error:  # noqa: BLE001 - the server logs the message and ends
            await send({"type": "lifespan.shutdown.failed", "message": str(error)})
            return
        await send({"type": "lifespan.shutdown.complete"})
