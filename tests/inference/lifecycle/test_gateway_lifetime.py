"""A gateway process comes up without Redis and leaves nothing behind when it goes."""

import asyncio
import json
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Outcome
from inference.lifecycle.completions import GatewaySettings
from inference.openai_api.gateway import create_gateway
from tenants import key_format
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.scripted_worker import ScriptedWorker, talk_until_cancelled
from tests.support.gateways.service import PEPPER, Service, serving
from tests.support.places import free_port
from tests.support.polling import eventually

STREAM = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "Count."}]}


async def test_a_gateway_that_stops_ends_what_it_had_open(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    worker.script = talk_until_cancelled
    await worker.start()
    async with service.client() as client:
        asked = asyncio.create_task(client.post("/v1/chat/completions", json=STREAM))
        await eventually(lambda: worker.runs)
        await service.gateway.shutdown()
        assert '"cancelled"' in (await asked).text
    [record] = await worker.records()
    assert record.outcome is Outcome.CANCELLED
    assert await dispatch_redis.hlen(keys.tenant_reservations("acme")) == 0


async def test_without_redis_every_answer_is_a_503() -> None:
    settings = GatewaySettings(
        dispatch_redis_url=f"redis://127.0.0.1:{free_port()}/0",
        api_key_pepper=PEPPER,
        cache_salt_secret=b"salt",
    )
    gateway = create_gateway(settings)
    await gateway.startup()
    try:
        async with serving(gateway.http) as url, httpx.AsyncClient(base_url=url) as client:
            headers = {"Authorization": f"Bearer {key_format.generate()}"}
            response = await client.post("/v1/chat/completions", json=STREAM, headers=headers)
    finally:
        await gateway.shutdown()
    assert response.status_code == 503


def test_settings_do_not_show_their_secrets(gateway_settings: GatewaySettings) -> None:
    assert "pepper" not in repr(gateway_settings).replace("api_key_pepper", "")
    assert "salt-secret" not in repr(gateway_settings)


@pytest.mark.parametrize("has_begun", [True, False])
async def test_a_handler_whose_time_to_shut_down_is_over_tells_its_client(
    service: Service, worker: ScriptedWorker, has_begun: bool
) -> None:
    """Servers cancel what has not ended when their patience does."""
    worker.script = talk_until_cancelled
    if has_begun:
        await worker.start()
    sent: list[Any] = []
    received = [{"type": "http.request", "body": json.dumps(STREAM).encode()}]

    async def receive() -> Any:
        return received.pop() if received else await asyncio.Future()

    async def send(message: Any) -> None:
        sent.append(message)

    authorization = (b"authorization", f"Bearer {service.alice}".encode())
    scope = {"path": "/v1/chat/completions", "method": "POST", "headers": [authorization]}
    handler = asyncio.create_task(service.gateway.http(scope, receive, send))
    await eventually(lambda: sent if has_begun else worker.redis.zcard(keys.pool_queue(POOL)))
    await asyncio.sleep(0)
    handler.cancel()
    await asyncio.wait([handler])
    assert sent[0]["status"] == (200 if has_begun else 503)
    assert b'"service_unavailable"' in sent[-1]["body"]
    assert not sent[-1].get("more_body")
    [record] = await eventually(worker.records)
    assert record.outcome is Outcome.CANCELLED
