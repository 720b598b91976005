"""What a process answers to paths of the other plane."""

from typing import Any, Final

from control_plane.planes.paths import Plane
from gpu_workers.protocol.request_id import new_request_id
from inference.errors import NotFound
from inference.openai_api.responses import send_error

# A close code, as the websocket door has for a path that is not there.
_NO_SUCH_PATH: Final = 4404


class Elsewhere:
    """The ASGI application of every path that `plane` answers, in a process that is not of it."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await receive()
            reason = f"served by the {self._plane} process"
            # Before it was accepted, a close is answered as 403.
            await send({"type": "websocket.close", "code": _NO_SUCH_PATH, "reason": reason})
            return
        await send_error(
            send,
            new_request_id(),
            NotFound(
                f"The {self._plane} process serves this path, not the one that was asked: have the "
                "proxy send it there (docs/deployment.md)."
            ),
        )
