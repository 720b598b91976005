"""The management plane alone: Django and uploads, no tokens.

uvicorn control_plane.processes.management:application --no-proxy-headers
"""

import os

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
from control_plane.processes.key_gate import KeyGate  # noqa: E402

raise_open_file_limit()
_keys = KeyGate(gateway_settings(settings.ENV))

application = Dispatcher(
    edge=edge(settings.ENV), lifetime=_keys, **django_side(_keys.admission.authenticate)
)
