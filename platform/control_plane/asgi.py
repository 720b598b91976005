"""The whole control plane in one ASGI process: the gateway, the websocket door and Django."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")
# Sets Django up, which everything below may rely on.
_handler = get_asgi_application()

from django.conf import settings  # noqa: E402

from control_plane.blobs.gate import BoundedBodies, UploadGate  # noqa: E402
from control_plane.dispatcher import Dispatcher  # noqa: E402
from control_plane.gateway import edge, gateway_settings  # noqa: E402
from control_plane.open_files import raise_open_file_limit  # noqa: E402
from control_plane.status.endpoints import StatusEndpoints  # noqa: E402
from control_plane.status.health import Health  # noqa: E402
from inference.openai_api.gateway import create_gateway  # noqa: E402
from inference.websocket_api.application import WebsocketApi  # noqa: E402

raise_open_file_limit()
_django = BoundedBodies(_handler)
_gateway = create_gateway(gateway_settings(settings.ENV))

application = Dispatcher(
    edge=edge(settings.ENV),
    lifetime=_gateway,
    gateway=_gateway.http,
    status=StatusEndpoints(
        Health(
            dispatch_redis_url=settings.ENV.gateway_redis_url,
            redis_url=settings.PENSTOCK_REDIS_URL,
            database_url=settings.PENSTOCK_DATABASE_URL,
        )
    ),
    websocket=WebsocketApi(_gateway.completions, _gateway.settings),
    uploads=UploadGate(_gateway.completions.admission.authenticate, _django),
    django=_django,
)
