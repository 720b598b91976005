"""The table of paths, and that the proxy of compose goes by the same one."""

import re
from pathlib import Path

import pytest
from control_plane.planes.paths import TABLE, Plane, plane_of

from inference.lifecycle.completions import GatewaySettings
from inference.openai_api.app import WITHOUT_VERSION
from inference.openai_api.gateway import create_gateway
from inference.websocket_api.application import PATH
from tests.support.places import ROOT

CADDYFILE = Path(ROOT / "platform/edge/Caddyfile").read_text()


def _matchers() -> dict[str, str]:
    """What each path pattern of the proxy leads to."""
    leads: dict[str, str] = {}
    for name, patterns in re.findall(r"(?m)^\t@(\w+) path (.+)$", CADDYFILE):
        body = re.search(rf"(?ms)^\thandle @{name} {{\n(.*?)^\t}}", CADDYFILE)
        assert body is not None
        (plane,) = re.findall(r"import (management)\b|:(gateway) 8000", body[1])
        leads |= dict.fromkeys(patterns.split(), plane[0] or plane[1])
    return leads


def test_the_proxy_goes_by_the_table() -> None:
    *named, (rest, last) = TABLE
    wanted = {pattern: plane for path, plane in named for pattern in (path, f"{path}/*")}
    assert list(_matchers().items()) == [(pattern, str(plane)) for pattern, plane in wanted.items()]
    assert (rest, last) == ("/", Plane.MANAGEMENT)
    assert re.search(r"(?m)^\thandle {\n\t\timport management\n\t}", CADDYFILE)


def test_every_address_of_the_gateway_is_the_gateways() -> None:
    gateway = create_gateway(
        GatewaySettings(
            dispatch_redis_url="redis://127.0.0.1:1/0", api_key_pepper=b"p", cache_salt_secret=b"c"
        )
    )
    for path in (*gateway.http.addresses, *WITHOUT_VERSION, PATH):
        assert plane_of(path) is Plane.GATEWAY


@pytest.mark.parametrize("path", ["", "v1/models", "//v1/models", "/V1/models", "/v1uploads"])
def test_what_is_no_path_of_the_table_is_managements(path: str) -> None:
    assert plane_of(path) is Plane.MANAGEMENT
