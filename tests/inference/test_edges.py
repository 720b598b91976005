"""Clear text and spoofed headers at the doors of the whole control plane, over a live server."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from ipaddress import ip_network
from typing import Any

import httpx
import pytest
from control_plane.dispatcher import Dispatcher
from control_plane.edge import Edge
from control_plane.status.endpoints import StatusEndpoints
from control_plane.status.health import Health
from control_plane.status.viewers import Viewers
from django.core.asgi import get_asgi_application
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from inference.lifecycle.completions import GatewaySettings
from inference.openai_api.gateway import create_gateway
from inference.websocket_api.application import WebsocketApi
from tests.support.gateways.cast import MODEL
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import Snapshot, serving

ALICE, PROXY, STRANGER = "203.0.113.7", "10.0.0.1", "198.51.100.9"
BY_TLS = {"x-forwarded-for": ALICE, "x-forwarded-proto": "https"}
BEHIND_A_PROXY = Edge(trusted_proxies=[ip_network(PROXY)])
SPOOFED = {
    "x-forwarded-for": "127.0.0.1",
    "x-forwarded-proto": "https",
    "x-forwarded-host": "evil.example",
    "forwarded": "for=127.0.0.1;proto=https;host=evil.example",
    "x-real-ip": "127.0.0.1",
    "x-tenant": "globex",
    "x-request-id": "chosen-by-the-caller",
}
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Count."}]}

Seen = Callable[[str], AbstractAsyncContextManager[str]]


@pytest.fixture
async def served_to(gateway_settings: GatewaySettings, alice: str) -> AsyncIterator[Seen]:
    """The whole control plane, as it looks to somebody at an address: gives the URL to call."""
    async with _control_plane(gateway_settings) as serve_to:
        yield serve_to


@pytest.fixture
async def served_to_behind_https(
    gateway_settings: GatewaySettings, alice: str, settings: Any
) -> AsyncIterator[Seen]:
    """The same with a public URL of https; Django's handler reads its settings when it is made."""
    settings.SECURE_SSL_REDIRECT = True
    async with _control_plane(gateway_settings, has_https=True) as serve_to:
        yield serve_to


@asynccontextmanager
async def _control_plane(
    gateway_settings: GatewaySettings, *, has_https: bool = False
) -> AsyncIterator[Seen]:
    gateway = create_gateway(gateway_settings)
    dispatcher = Dispatcher(
        has_https=has_https,
        edge=BEHIND_A_PROXY,
        lifetime=gateway,
        gateway=gateway.http,
        status=StatusEndpoints(
            Health(dispatch_redis_url=gateway_settings.dispatch_redis_url), Viewers()
        ),
        websocket=WebsocketApi(gateway.completions, gateway_settings),
        django=get_asgi_application(),
    )

    @asynccontextmanager
    async def serve_to(peer: str) -> AsyncIterator[str]:
        async def from_peer(scope: Any, receive: Any, send: Any) -> None:
            await dispatcher(scope | {"client": (peer, 4711)}, receive, send)

        async with serving(from_peer) as url:
            yield url

    await gateway.startup()
    yield serve_to
    await gateway.shutdown()


@pytest.fixture
async def alice(snapshot: Snapshot) -> str:
    """Her key; Globex has a model of its own."""
    await snapshot.add_model(MODEL)
    await snapshot.add_model("model-of-globex", tenant_ids=["globex"])
    return await snapshot.add_key("Acme")


def bearer(key: str, headers: dict[str, str] | None = None) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"} | (headers or {})


async def ask(url: str, path: str, headers: dict[str, str]) -> httpx.Response:
    async with httpx.AsyncClient(base_url=url) as client:
        return await client.get(path, headers=headers)


@pytest.mark.parametrize("path", ["/v1/models", "/v1/nowhere", "/v1"])
@pytest.mark.parametrize("headers", [{}, SPOOFED])
async def test_a_key_in_clear_text_is_refused_and_told_how_to_come(
    served_to: Seen, alice: str, path: str, headers: dict[str, str]
) -> None:
    async with served_to(STRANGER) as url:
        answer = await ask(url, path, bearer(alice, headers))
    assert answer.status_code == 403
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == ("clear_text_refused", "permission_error")
    assert "https" in error["message"] and "PENSTOCK_TRUSTED_PROXIES" in error["message"]
    assert answer.headers["x-request-id"] != SPOOFED["x-request-id"]


@pytest.mark.parametrize("headers", [{}, SPOOFED])
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/api/v1/tenants"),
        ("POST", "/api/v1/session"),
        ("POST", "/api/v1/tickets"),
        ("POST", "/account/login/"),
        ("GET", "/account/login/"),
        ("POST", "/admin/login/"),
        ("GET", "/admin/login/"),
        ("GET", "/sso/0b0e37ab-2f1a-4f8d-8f0a-3c9d2d2f7a11/callback?code=c&state=s"),
        ("GET", "/blobs/adapters/x?signature=y"),
        ("GET", "/t/0b0e37ab-2f1a-4f8d-8f0a-3c9d2d2f7a11/"),
        ("POST", "/"),
    ],
)
async def test_every_door_that_takes_a_credential_refuses_clear_text(
    served_to: Seen, method: str, path: str, headers: dict[str, str]
) -> None:
    async with served_to(STRANGER) as url, httpx.AsyncClient(base_url=url) as client:
        answer = await client.request(method, path, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "clear_text_refused")


@pytest.mark.parametrize(
    "headers", [{"authorization": "Bearer x"}, {"cookie": "a=b; penstock_session=c"}]
)
async def test_an_open_page_refuses_a_credential_in_clear_text(
    served_to: Seen, headers: dict[str, str]
) -> None:
    async with served_to(STRANGER) as url:
        assert (await ask(url, "/", headers)).status_code == 403
        assert (await ask(url, "/", {"cookie": "a=b"})).status_code == 200


async def test_a_browser_that_brings_nothing_is_led_to_https(
    served_to_behind_https: Seen,
) -> None:
    async with served_to_behind_https(STRANGER) as url:
        page = await ask(url, "/account/login/", {})
        api = await ask(url, "/api/v1/tenants", {})
    assert (page.status_code, page.headers["location"]) == (
        301,
        url.replace("http:", "https:") + "/account/login/",
    )
    assert api.status_code == 403


@pytest.mark.parametrize("headers", [{}, SPOOFED])
async def test_a_websocket_in_clear_text_is_refused_at_its_handshake(
    served_to: Seen, alice: str, headers: dict[str, str]
) -> None:
    async with served_to(STRANGER) as url:
        address = f"{url.replace('http', 'ws', 1)}/ws/v1/stream"
        with pytest.raises(InvalidStatus) as caught:
            await connect(address, additional_headers=bearer(alice, headers))
    assert caught.value.response.status_code == 403
    assert b"clear_text_refused" in (caught.value.response.body or b"")


async def test_through_a_trusted_proxy_that_ended_tls_both_doors_open(
    served_to: Seen, alice: str
) -> None:
    headers = bearer(alice, BY_TLS)
    async with served_to(PROXY) as url:
        assert (await ask(url, "/v1/models", headers)).status_code == 200
        address = f"{url.replace('http', 'ws', 1)}/ws/v1/stream"
        async with connect(address, additional_headers=headers):
            pass


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_come_from_anywhere(served_to: Seen, path: str) -> None:
    async with served_to(STRANGER) as url:
        assert (await ask(url, path, {})).status_code in (200, 503)


@pytest.mark.parametrize("path", ["/metrics", "/metrics/targets"])
async def test_a_scrapers_token_in_clear_text_is_refused(served_to: Seen, path: str) -> None:
    async with served_to(STRANGER) as url:
        answer = await ask(url, path, {"authorization": "Bearer the-token-of-a-scraper"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "clear_text_refused")


@pytest.mark.parametrize(
    "headers",
    [SPOOFED, {"host": "evil.example"}, {"host": "globex.penstock.example"}, {"host": "a b<>"}],
)
async def test_spoofed_headers_change_nothing_on_the_api(
    served_to: Seen, alice: str, worker: ScriptedWorker, headers: dict[str, str]
) -> None:
    await worker.start()
    async with served_to("127.0.0.1") as url, httpx.AsyncClient(base_url=url) as client:
        plain = await client.get("/v1/models", headers=bearer(alice))
        spoofed = await client.get("/v1/models", headers=bearer(alice, headers))
        chat = await client.post("/v1/chat/completions", json=CHAT, headers=bearer(alice, headers))
        anonymous = await client.get("/v1/models", headers=headers)
    assert spoofed.status_code == 200
    assert spoofed.json() == plain.json()
    assert [model["id"] for model in spoofed.json()["data"]] == [MODEL]
    assert spoofed.headers.keys() == plain.headers.keys()
    assert chat.status_code == 200
    assert anonymous.status_code == 401
    [record] = await worker.records()
    assert record.tenant_id == "acme"
    for answer in (spoofed, chat, anonymous):
        assert answer.headers["x-request-id"] != SPOOFED["x-request-id"]
        assert "evil" not in answer.text and "chosen" not in answer.text
    assert SPOOFED["x-request-id"] not in record.request_id


@pytest.mark.parametrize("path", ["/", "/admin/", "/admin/login/", "/no/such/page"])
async def test_django_refuses_a_host_that_is_not_its_own(served_to: Seen, path: str) -> None:
    async with served_to("127.0.0.1") as url:
        answer = await ask(url, path, {"host": "evil.example"})
        forwarded = await ask(url, "/", {"host": "testserver", "x-forwarded-host": "evil.example"})
    assert answer.status_code == 400
    assert forwarded.status_code == 200
    assert "evil" not in forwarded.text


async def test_django_takes_the_scheme_from_the_edge(settings: Any) -> None:
    """As with a public URL of https; Django's handler reads its settings when it is made."""
    settings.SECURE_SSL_REDIRECT = True
    secure = await _at_django(PROXY, BY_TLS)
    assert secure.status_code == 200
    for peer, headers in ((STRANGER, BY_TLS), (PROXY, {}), ("127.0.0.1", BY_TLS)):
        answer = await _at_django(peer, headers)
        assert answer.status_code == 301
        assert answer.headers["location"] == "https://testserver/"


async def _at_django(peer: str, headers: dict[str, str]) -> httpx.Response:
    django = get_asgi_application()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        scope["client"] = (peer, 4711)
        BEHIND_A_PROXY.take_in(scope)
        await django(scope, receive, send)

    async with serving(application) as url:
        return await ask(url, "/", {"host": "testserver"} | headers)


@pytest.mark.parametrize(("peer", "status"), [(PROXY, 200), ("127.0.0.1", 403)])
async def test_a_keys_networks_are_held_against_an_address_that_a_trusted_proxy_names(
    served_to: Seen, snapshot: Snapshot, alice: str, peer: str, status: int
) -> None:
    key = await snapshot.add_key("Acme", networks=["203.0.113.0/24"])
    async with served_to(peer) as url:
        answer = await ask(url, "/v1/models", bearer(key, BY_TLS))
    assert answer.status_code == status
