"""The websocket door as one ASGI application. Needs Django's settings, as Channels does."""

from typing import Any, Final

from inference.background import Background
from inference.lifecycle.completions import Completions, GatewaySettings
from inference.websocket_api.access_watch import AccessWatch
from inference.websocket_api.consumer import StreamConsumer

PATH: Final = "/ws/v1/stream"


class WebsocketApi:
    """Answers `PATH`; refuses every other."""

    def __init__(self, completions: Completions, settings: GatewaySettings) -> None:
        background = Background()
        self._consumer = StreamConsumer.as_asgi(
            completions=completions,
            settings=settings,
            background=background,
            access=AccessWatch(completions.admission, background),
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"].rstrip("/") == PATH:
            await self._consumer(scope, receive, send)
            return
        await receive()
        # Before it was accepted, a close is answered as 403.
        await send({"type": "websocket.close", "code": 4404, "reason": f"only {PATH} is served"})
