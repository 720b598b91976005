"""The gateway alone: /v1/ and the probes, without Django and without PostgreSQL. With websockets it
is `control_plane.processes.gateway`.

uvicorn control_plane.gateway:application --no-proxy-headers

Only the edge decides who is calling, so uvicorn's own reading of X-Forwarded-* is switched off.
"""

import hashlib
import hmac
import logging.config
import os
from collections.abc import Callable

from control_plane.dispatcher import Application, Dispatcher
from control_plane.edge import Edge
from control_plane.env import GatewayEnvironment, InvalidSettings
from control_plane.logs import configure_structlog, logging_config
from control_plane.process_limits import forbid_core_dumps, raise_open_file_limit
from control_plane.status.endpoints import StatusEndpoints
from control_plane.status.health import Health
from control_plane.status.viewers import Viewers
from inference.lifecycle.completions import GatewaySettings
from inference.openai_api.gateway import Gateway, create_gateway

# Makes the door of websockets, which needs Django's settings.
Websockets = Callable[[Gateway], Application]


def gateway_settings(env: GatewayEnvironment) -> GatewaySettings:
    """Return the gateway's part of the environment, whether it runs alone or beside Django."""
    return GatewaySettings(
        dispatch_redis_url=env.gateway_redis_url,
        api_key_pepper=env.api_key_pepper,
        previous_api_key_peppers=env.previous_api_key_peppers,
        # The same in all gateways, so that they share a tenant's prefix cache; a key of its own.
        cache_salt_secret=hmac.new(env.api_key_pepper, b"cache salt", hashlib.sha256).digest(),
        allowed_origins=env.allowed_origins,
        max_body_bytes=env.max_body_bytes,
        max_queue_bytes=env.max_queue_bytes,
        stall_seconds=env.stall_seconds,
        worker_expected_seconds=env.worker_expected_seconds,
        traces_endpoint=env.traces_endpoint,
    )


def edge(env: GatewayEnvironment) -> Edge:
    return Edge(trusted_proxies=env.trusted_proxies, allow_clear_text=env.allow_clear_text)


def viewers(env: GatewayEnvironment) -> Viewers:
    return Viewers(token=env.metrics_token, networks=env.metrics_networks)


def create_application(env: GatewayEnvironment, websockets: Websockets | None = None) -> Dispatcher:
    gateway = create_gateway(gateway_settings(env))
    health = Health(dispatch_redis_url=env.gateway_redis_url)
    return Dispatcher(
        edge=edge(env),
        lifetime=gateway,
        gateway=gateway.http,
        status=StatusEndpoints(health, viewers(env)),
        websocket=None if websockets is None else websockets(gateway),
    )


def start(websockets: Websockets | None = None) -> Dispatcher:
    """Create the application of a process that is a gateway and nothing else. Raises `SystemExit`
    for invalid settings."""
    forbid_core_dumps()
    try:
        env = GatewayEnvironment.from_environ(os.environ)
    except InvalidSettings as problem:
        raise SystemExit(f"The gateway cannot start: {problem}") from None
    logging.config.dictConfig(logging_config(env.log_format, env.log_level))
    configure_structlog()
    raise_open_file_limit()
    return create_application(env, websockets)


def __getattr__(name: str) -> Dispatcher:
    """Create `application` when a server asks for it, so that others may import this module. Raises
    `SystemExit` for invalid settings."""
    if name != "application":
        raise AttributeError(name)
    application = globals()["application"] = start()
    return application
