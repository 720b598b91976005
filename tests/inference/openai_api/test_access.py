"""Who is let in to what: keys, models and paths, and a policy snapshot that is missing."""

import asyncio

import httpx
import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from inference import tasks
from inference.admission.gate import POLL_SECONDS
from inference.lifecycle.completions import GatewaySettings
from inference.openai_api.gateway import create_gateway
from tenants import key_format
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.chat_request import CHAT, body
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import Service, serving
from tests.support.polling import eventually


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Basic dXNlcjpwYXNz",
        "Bearer sk-something-else",
        "Bearer pk-aaaaaaaaaaaaaaaa-" + "a" * 32 + "000000",
        "Bearer " + "x" * 10_000,
        "Bearer schlüssel",
    ],
)
async def test_a_missing_or_wrong_key_is_a_401(service: Service, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization.encode("latin-1")}
    async with httpx.AsyncClient(base_url=service.url) as client:
        for method, path in (("GET", "/v1/models"), ("POST", CHAT), ("POST", "/v1/stream/tickets")):
            response = await client.request(method, path, headers=headers)  # type: ignore[arg-type]
            assert response.status_code == 401
            assert response.json()["error"]["type"] == "authentication_error"
            assert response.headers["www-authenticate"] == "Bearer"
            assert response.headers["x-request-id"]


async def test_a_well_formed_key_that_nobody_has_is_a_401(service: Service) -> None:
    async with service.client(key_format.generate()) as client:
        assert (await client.get("/v1/models")).status_code == 401


async def test_a_key_with_the_right_id_and_another_secret_is_a_401(service: Service) -> None:
    public_id = key_format.parse(service.alice).public_id
    forged = key_format.generate(public_id)
    async with service.client(service.alice) as good, service.client(forged) as bad:
        assert (await good.get("/v1/models")).status_code == 200
        assert (await bad.get("/v1/models")).status_code == 401


async def test_a_revoked_key_is_refused_everywhere_soon(service: Service) -> None:
    async with service.client() as client:
        assert (await client.get("/v1/models")).status_code == 200
        await service.snapshot.put_key(
            service.alice, "Acme", refusal="This API key has been revoked."
        )

        async def is_refused() -> bool:
            response = await client.get("/v1/models")
            return "api_key_revoked" in response.text

        assert await eventually(is_refused, 10 * POLL_SECONDS)


async def test_unknown_and_forbidden_models_look_the_same(service: Service) -> None:
    await service.snapshot.add_model("acme-only", tenant_ids=["acme"])

    async def listed(key: str) -> set[str]:
        async with service.client(key) as client:
            return {model["id"] for model in (await client.get("/v1/models")).json()["data"]}

    async def alice_sees_it() -> bool:
        return await listed(service.alice) == {MODEL, "acme-only"}

    assert await eventually(alice_sees_it)
    assert await listed(service.bob) == {MODEL}
    async with service.client(service.bob) as bob:
        answers = []
        for name in ("acme-only", "no-such-one"):
            shown = await bob.get(f"/v1/models/{name}")
            asked = await bob.post(CHAT, content=body(model=name))
            assert (shown.status_code, asked.status_code) == (404, 404)
            assert shown.json()["error"]["code"] == "model_not_found"
            answers.append(asked.text.replace(name, "NAME"))
    assert answers[0] == answers[1]


@pytest.mark.parametrize("path", ["org/model", "org%2Fmodel", "org/model/"])
async def test_a_model_can_be_shown(service: Service, path: str) -> None:
    await service.snapshot.add_model("org/model", capabilities=["chat"])
    async with service.client() as client:
        response = await client.get(f"/v1/models/{path}")
    assert response.json() == {
        "id": "org/model",
        "object": "model",
        "created": 1,
        "owned_by": "penstock",
        "max_model_len": 2048,
        "capabilities": ["chat"],
        "parent": None,
    }


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v1/nothing", 404),
        ("GET", "/v1", 404),
        ("GET", CHAT, 405),
        ("DELETE", "/v1/models", 405),
        ("POST", f"/v1/models/{MODEL}", 405),
    ],
)
async def test_wrong_paths_and_methods_get_the_envelope(
    service: Service, method: str, path: str, status: int
) -> None:
    async with service.client() as client:
        response = await client.request(method, path)
    assert response.status_code == status
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert response.headers["x-request-id"]
    assert (status == 405) == ("allow" in response.headers)


async def test_without_a_snapshot_nobody_is_told_that_a_key_is_wrong(
    gateway_settings: GatewaySettings, dispatch_redis: Redis
) -> None:
    gateway = create_gateway(gateway_settings)
    await gateway.startup()
    try:
        async with serving(gateway.http) as url, httpx.AsyncClient(base_url=url) as client:
            headers = {"Authorization": f"Bearer {key_format.generate()}"}
            response = await client.get("/v1/models", headers=headers)
    finally:
        await gateway.shutdown()
    assert response.status_code == 503
    assert response.headers["retry-after"]
    assert response.json()["error"]["code"] == "policy_unavailable"


async def test_requests_wait_for_the_snapshot_where_redis_lost_everything(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    async with service.client() as client:
        assert (await client.get("/v1/models")).status_code == 200
        await dispatch_redis.flushall()
        await dispatch_redis.function_flush()
        listed = asyncio.create_task(client.get("/v1/models"))
        await eventually(lambda: not service.gateway.completions.admission.has_policy)
        await service.snapshot.put_key(service.alice, "Acme")
        await service.snapshot.add_model(MODEL)
        assert (await listed).status_code == 200
        # As the clock has it done: a gateway may not load functions.
        await asyncio.to_thread(tasks.restore_functions)
        asked = asyncio.create_task(client.post(CHAT, content=body()))
        await eventually(lambda: dispatch_redis.exists(keys.pool_queue(POOL)))
        await worker.start()
        assert (await asked).status_code == 200
