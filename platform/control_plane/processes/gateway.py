"""The inference plane alone, websockets included: without PostgreSQL and without Django's settings.

uvicorn control_plane.processes.gateway:application --no-proxy-headers
"""

from django.conf import settings

from control_plane.edge import SESSION_COOKIE

# All that Channels and the websocket door ask Django for.
settings.configure(SESSION_COOKIE_NAME=SESSION_COOKIE)

from control_plane.gateway import start  # noqa: E402
from inference.websocket_api.application import WebsocketApi  # noqa: E402

application = start(lambda gateway: WebsocketApi(gateway.completions, gateway.settings))
