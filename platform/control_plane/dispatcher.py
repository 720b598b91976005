"""Which ASGI application answers a path, and the lifespan of them all.

/v1/ goes to the gateway without Django's middleware, database or threads in its way, but for
uploads, which are Django's behind a gate of their own; /ws/ to Channels; probes to the status
endpoints; all else to Django, where there is one. Before any of them
stands the edge, which says who is calling and refuses API keys in clear text.
"""

import gc
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from control_plane.edge import Edge, refuse_clear_text
from control_plane.status import endpoints

UPLOADS: Final = "/v1/uploads"

# Scope, receive and send: what they hold is the servers' business, and Django's.
Application = Callable[[Any, Any, Any], Awaitable[None]]


class Startable(Protocol):
    """Something that lives as long as the process serves."""

    async def startup(self) -> None: ...

    async def shutdown(self) -> None: ...


class Dispatcher:
    """The ASGI application of a process. `websocket`, `uploads` and `django` are None for a gateway
    alone, which then answers every other path itself, with its own 404."""

    def __init__(
        self,
        *,
        edge: Edge,
        lifetime: Startable,
        gateway: Application,
        status: Application,
        websocket: Application | None = None,
        uploads: Application | None = None,
        django: Application | None = None,
    ) -> None:
        self._edge = edge
        self._lifetime = lifetime
        self._gateway = gateway
        self._status = status
        self._websocket = websocket
        self._uploads = uploads
        self._django = django

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        is_clear_text = self._edge.take_in(scope)
        application = self._application(scope)
        if is_clear_text and application in (self._gateway, self._uploads, self._connect):
            application = refuse_clear_text
        await application(scope, receive, send)

    def _application(self, scope: Any) -> Application:
        if scope["type"] == "websocket":
            return self._connect
        path = scope["path"]
        if path in endpoints.PATHS:
            return self._status
        if self._uploads is not None and (path == UPLOADS or path.startswith(f"{UPLOADS}/")):
            return self._uploads
        if self._django is None or path.startswith("/v1/") or path == "/v1":
            return self._gateway
        return self._django

    async def _connect(self, scope: Any, receive: Any, send: Any) -> None:
        if self._websocket is not None and scope["path"].startswith("/ws/"):
            await self._websocket(scope, receive, send)
            return
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
