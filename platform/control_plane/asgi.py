"""The whole control plane in one ASGI process: the gateway, the websocket door and Django. Each
plane as a process of its own is in `processes/`."""

import os
import sys

import django

from control_plane.process_limits import forbid_core_dumps, raise_open_file_limit

forbid_core_dumps()
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "control_plane.settings")
# Everything below may rely on it.
django.setup(set_prefix=False)

from django.conf import settings  # noqa: E402

from control_plane.dispatcher import Dispatcher  # noqa: E402
from control_plane.gateway import edge, gateway_settings  # noqa: E402
from control_plane.processes.django_side import django_side  # noqa: E402
from inference.openai_api.gateway import create_gateway  # noqa: E402
from inference.websocket_api.application import WebsocketApi  # noqa: E402

raise_open_file_limit()
# Streams run in the event loop, pages in threads: a page that computes keeps the interpreter from
# streams for this long each time, by default for 5 ms.
sys.setswitchinterval(0.0005)
_gateway = create_gateway(gateway_settings(settings.ENV))

application = Dispatcher(
    edge=edge(settings.ENV),
    lifetime=_gateway,
    gateway=_gateway.http,
    websocket=WebsocketApi(_gateway.completions, _gateway.settings),
    **django_side(_gateway.completions.admission.authenticate),
)
