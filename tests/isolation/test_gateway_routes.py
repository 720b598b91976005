"""The table for all that the gateway answers, over HTTP and websockets, against a live server whose
policy snapshot the real writer made from PostgreSQL."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest
from control_plane.dispatcher import Dispatcher
from control_plane.edge import Edge
from control_plane.env import LOOPBACK
from control_plane.gateway import gateway_settings
from control_plane.status import endpoints
from control_plane.status.endpoints import StatusEndpoints
from control_plane.status.health import Health
from control_plane.status.viewers import Viewers
from django.conf import settings
from redis.asyncio import Redis
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from inference.openai_api.gateway import create_gateway
from inference.websocket_api.application import PATH as WEBSOCKET
from inference.websocket_api.application import WebsocketApi
from tenants.policy.writer import rebuild_policy
from tests.isolation.credentials import Credential
from tests.isolation.table import COLUMNS, GATEWAY_ROWS, WEBSOCKET_ROWS, Row
from tests.support.gateways.service import serving
from tests.support.places import NO_TLS
from tests.support.two_tenants import CANARY, TwoTenants

OTHERS = {"Globex", "Globex key"}
NOTHING = "/v1/*"
ROWS = [row for row in GATEWAY_ROWS.values() if row.method != "ANY"]


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """The whole application but Django, at an address."""

    url: str
    addresses: dict[str, str]


@pytest.fixture
def written(dispatch_redis: Redis, houses: TwoTenants, asking: dict[str, Credential]) -> None:
    """The snapshot, as the real writer writes it."""
    rebuild_policy()


@pytest.fixture
async def deployment(written: None) -> AsyncIterator[Deployment]:
    gateway = create_gateway(gateway_settings(settings.ENV))
    application = Dispatcher(
        edge=Edge(),
        lifetime=gateway,
        gateway=gateway.http,
        status=StatusEndpoints(
            Health(dispatch_redis_url=settings.PENSTOCK_DISPATCH_REDIS_URL),
            Viewers(networks=LOOPBACK),
        ),
        websocket=WebsocketApi(gateway.completions, gateway.settings),
    )
    await gateway.startup()
    try:
        async with serving(application) as url:
            yield Deployment(url=url, addresses=gateway.http.addresses)
    finally:
        await gateway.shutdown()


async def test_every_address_has_a_row_and_every_row_an_address(deployment: Deployment) -> None:
    routes = set(deployment.addresses.items())
    routes |= {(path, "GET") for path in endpoints.PATHS}
    assert routes | {(NOTHING, "ANY")} == set(GATEWAY_ROWS)
    assert {WEBSOCKET, "/ws/*"} == {address for address, _ in WEBSOCKET_ROWS}


def asker_of(deployment: Deployment) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=deployment.url, timeout=10, verify=NO_TLS)


def address_of(row: Row) -> str:
    return row.address.replace("<model>", "acme-model").replace("*", "nothing")


@pytest.mark.parametrize("row", ROWS, ids=str)
async def test_each_credential_gets_its_status_and_nothing_of_globex(
    row: Row,
    deployment: Deployment,
    asking: dict[str, Credential],
) -> None:
    found = {}
    async with asker_of(deployment) as client:
        for column, credential in asking.items():
            client.cookies = httpx.Cookies(credential.cookies)
            body = b"{}" if row.method == "POST" else None
            answer = await client.request(
                row.method, address_of(row), content=body, headers=credential.headers
            )
            found[column] = answer.status_code
            if column not in OTHERS:
                assert CANARY not in f"{answer.headers}{answer.text}", column
    assert found == dict(zip(COLUMNS, row.statuses, strict=True))


async def test_other_methods_and_addresses_are_nobodys(
    deployment: Deployment, asking: dict[str, Credential]
) -> None:
    async with asker_of(deployment) as client:
        for column, credential in asking.items():
            for row in ROWS:
                for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
                    if method == row.method:
                        continue
                    answer = await client.request(
                        method, address_of(row), headers=credential.headers
                    )
                    assert answer.status_code == 405, (method, row.address, column)
                    assert row.method in answer.headers["allow"]
            nothing = await client.get("/v1/nothing", headers=credential.headers)
            assert nothing.status_code == GATEWAY_ROWS[NOTHING, "ANY"].statuses[0]


async def test_globexs_model_is_told_from_nothing_by_nobody_of_acme(
    deployment: Deployment, asking: dict[str, Credential]
) -> None:
    async with asker_of(deployment) as client:
        for column, credential in asking.items():
            if column in OTHERS:
                continue
            theirs, unknown = [
                await client.get(f"/v1/models/{name}", headers=credential.headers)
                for name in (f"{CANARY}-model", "no-such-model")
            ]
            assert theirs.status_code in {401, 404}
            assert theirs.status_code == unknown.status_code
            # The name is repeated to whoever asked for it, and that is all.
            assert theirs.text.replace(f"{CANARY}-model", "no-such-model") == unknown.text
        asked = await client.post(
            "/v1/chat/completions",
            json={
                "model": f"{CANARY}-model",
                "messages": [{"role": "user", "content": "Hello"}],
            },
            headers=asking["inference"].headers,
        )
        assert (asked.status_code, asked.json()["error"]["code"]) == (404, "model_not_found")


@pytest.mark.parametrize("row", WEBSOCKET_ROWS.values(), ids=str)
async def test_each_credential_gets_its_connection_or_none(
    row: Row,
    deployment: Deployment,
    asking: dict[str, Credential],
) -> None:
    address = deployment.url.replace("http", "ws", 1) + row.address.replace("*", "nothing")
    found = {}
    for column, credential in asking.items():
        headers = {name.title(): value for name, value in credential.headers.items()}
        if credential.cookies:
            headers["Cookie"] = "; ".join(f"{k}={v}" for k, v in credential.cookies.items())
        try:
            async with connect(address, additional_headers=headers):
                found[column] = 101
        except InvalidStatus as refused:
            found[column] = refused.response.status_code
    assert found == dict(zip(COLUMNS, row.statuses, strict=True))
