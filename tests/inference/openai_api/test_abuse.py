"""What callers tried on others' gateways: SQL as a key, a server of their own choice, headers that
lead to another route."""

import asyncio
from urllib.parse import urlsplit

import pytest

from tests.support.gateways.chat_request import CHAT, body
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import Service

SQL = (
    "' OR '1'='1",
    "'; DROP TABLE tenants_apikey; --",
    "pk-aaaaaaaaaaaaaaaa-' UNION SELECT secret FROM tenants_apikey --",
    'pk-"}{"$ne":null}',
    "pk-*",
)
ADDRESS = "http://169.254.169.254/latest/meta-data/"
UPSTREAM = {
    "api_base": ADDRESS,
    "base_url": ADDRESS,
    "api_key": "sk-of-somebody",
    "custom_llm_provider": "openai",
    "model_list": [{"litellm_params": {"api_base": ADDRESS}}],
    "user_config": {"model_list": []},
    "extra_headers": {"Host": "evil.example"},
    "extra_body": {"lora_path": "/etc/passwd"},
    "kv_transfer_params": {"remote_host": "169.254.169.254"},
    "mm_processor_kwargs": {"url": ADDRESS},
    "vllm_xargs": {"url": ADDRESS},
    "lora_path": "/etc/passwd",
}


@pytest.mark.parametrize("path", ["/v1/models", CHAT, "/v1/stream/tickets"])
async def test_sql_is_no_key_and_is_not_repeated(service: Service, path: str) -> None:
    async with service.client() as client:
        for text in SQL:
            answer = await client.request(
                "GET" if path == "/v1/models" else "POST",
                path,
                headers={"Authorization": f"Bearer {text}"},
            )
            assert (answer.status_code, answer.json()["error"]["type"]) == (
                401,
                "authentication_error",
            )
            assert text not in answer.text


@pytest.mark.parametrize("field", UPSTREAM)
async def test_nobody_names_the_server_that_answers(
    service: Service, worker: ScriptedWorker, field: str
) -> None:
    await worker.start()
    async with service.client() as client:
        answer = await client.post(CHAT, content=body(**{field: UPSTREAM[field]}))
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].split(".")[0] == field
    assert ADDRESS not in answer.text
    assert worker.runs == {}


@pytest.mark.parametrize("model", [ADDRESS, "../../etc/passwd", "file:///etc/passwd", "m\x00"])
async def test_an_address_is_no_model(service: Service, worker: ScriptedWorker, model: str) -> None:
    await worker.start()
    async with service.client() as client:
        answer = await client.post(CHAT, content=body(model=model))
    assert answer.status_code == 404
    assert worker.runs == {}


async def raw(service: Service, request: str) -> int:
    """The status of what is sent as it stands."""
    address = urlsplit(service.url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(f"{request}\r\nConnection: close\r\n\r\n".encode())
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


@pytest.mark.parametrize(
    ("request_line", "headers"),
    [
        ("GET /v1/models", ["X-Original-URL: /healthz"]),
        ("GET /v1/models", ["X-Rewrite-URL: /healthz"]),
        ("GET /v1/models", ["X-HTTP-Method-Override: OPTIONS"]),
        ("GET http://evil.example/v1/models", []),
        ("GET http://127.0.0.1/healthz/../v1/models", []),
        ("GET //v1/models", []),
        ("GET /healthz/../v1/models", []),
        ("GET /healthz%2f..%2fv1/models", []),
        ("GET /v1/models;/healthz", []),
        ("GET /v1/models?x=/healthz", []),
    ],
)
async def test_no_way_of_asking_leads_past_the_key(
    service: Service, request_line: str, headers: list[str]
) -> None:
    request = "\r\n".join([f"{request_line} HTTP/1.1", "Host: healthz", *headers])
    assert await raw(service, request) in {401, 404}
    keyed = f"{request}\r\nAuthorization: Bearer {service.alice}"
    assert await raw(service, keyed) in {200, 404}


async def test_no_answer_is_guessed_at_or_read_by_another_site(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    origin = {"Origin": "http://evil.example"}
    async with service.client() as client:
        answers = [
            await client.get("/v1/models", headers=origin),
            await client.post(CHAT, content=body(), headers=origin),
            await client.post(CHAT, content=body(stream=True), headers=origin),
            await client.post(CHAT, content=b"{", headers=origin),
            await client.get("/v1/none", headers=origin),
            await client.options(CHAT, headers=origin | {"Access-Control-Request-Method": "POST"}),
        ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 400, 404, 405]
    for answer in answers:
        assert answer.headers["x-content-type-options"] == "nosniff", answer.request
        assert not [name for name in answer.headers if name.startswith("access-control")]
