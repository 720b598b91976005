"""Pages, gateway and websocket on one port, and a scripted worker behind them: what a browser needs
to ask a model."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_network

from control_plane.dispatcher import Dispatcher
from control_plane.edge import Edge
from control_plane.status.endpoints import StatusEndpoints
from control_plane.status.health import Health
from control_plane.status.viewers import Viewers
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler

from gpu_workers.cancellation import cancel_and_wait
from inference.lifecycle.completions import GatewaySettings
from inference.openai_api.gateway import create_gateway
from inference.websocket_api.application import WebsocketApi
from tests.support.chromium.serving import serving
from tests.support.gateways.scripted_worker import Script, ScriptedWorker
from tests.support.places import LOOPBACK, free_port

_START_SECONDS = 30


@contextmanager
def whole_service(gateway_redis_url: str) -> Iterator[str]:
    """Serve all doors from one process, as production does; yields the address."""
    port = free_port()
    gateway = create_gateway(
        GatewaySettings(
            dispatch_redis_url=gateway_redis_url,
            api_key_pepper=settings.PENSTOCK_API_KEY_PEPPER,
            cache_salt_secret=b"cache-salt-secret-of-the-browser-tests",
            allowed_origins=(f"http://{LOOPBACK}:{port}",),
            drain_seconds=0.5,
        )
    )
    application = Dispatcher(
        edge=Edge(trusted_proxies=(), allow_clear_text=True),
        lifetime=gateway,
        gateway=gateway.http,
        status=StatusEndpoints(
            Health(dispatch_redis_url=gateway_redis_url),
            Viewers(networks=[ip_network("127.0.0.0/8")]),
        ),
        websocket=WebsocketApi(gateway.completions, gateway.settings),
        django=ASGIHandler(),
    )
    with serving(application, port, lifespan="on") as url:
        yield url


@contextmanager
def a_worker_in_a_thread(redis_url: str, script: Script, **names: str) -> Iterator[ScriptedWorker]:
    """A scripted worker with a loop of its own, which keeps its lease until the end of the
    block. `names` are its pool and id, where they matter."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def started() -> tuple[ScriptedWorker, asyncio.Task[None]]:
        worker = ScriptedWorker(redis_url, script, **names)
        await worker.start()
        return worker, asyncio.create_task(worker.keep_lease())

    async def stopped() -> None:
        await cancel_and_wait([lease])
        await worker.stop()

    worker, lease = asyncio.run_coroutine_threadsafe(started(), loop).result(_START_SECONDS)
    try:
        yield worker
    finally:
        asyncio.run_coroutine_threadsafe(stopped(), loop).result(_START_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_START_SECONDS)
        loop.close()
