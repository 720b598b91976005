"""The management plane's doors, for a process of its own and for one that has both planes. Needs
Django set up."""

from functools import partial
from importlib import import_module
from typing import TypedDict

from django.conf import settings

from control_plane.blobs.gate import Authenticate, BoundedBodies, UploadGate
from control_plane.celery import BEAT_INTERVALS
from control_plane.gateway import viewers
from control_plane.serving.one_thread import OneThreadHandler
from control_plane.status import background
from control_plane.status.endpoints import StatusEndpoints
from control_plane.status.health import Health


class DjangoSide(TypedDict):
    """What `Dispatcher` takes of it."""

    status: StatusEndpoints
    uploads: UploadGate
    django: BoundedBodies
    has_https: bool


def django_side(authenticate: Authenticate) -> DjangoSide:
    """Create the doors; whoever uploads is asked for a key by `authenticate`."""
    import_module(settings.ROOT_URLCONF)  # all pages, or the first request would wait for them
    handler = OneThreadHandler()
    health = Health(
        dispatch_redis_url=settings.ENV.gateway_redis_url,
        redis_url=settings.PENSTOCK_REDIS_URL,
        database_url=settings.PENSTOCK_DATABASE_URL,
        background=partial(background.look, intervals=BEAT_INTERVALS),
    )
    return DjangoSide(
        status=StatusEndpoints(health, viewers(settings.ENV)),
        uploads=UploadGate(authenticate, BoundedBodies(handler)),
        django=BoundedBodies(handler, is_open_to_anybody=True),
        has_https=settings.SECURE_SSL_REDIRECT,
    )
