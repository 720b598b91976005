"""A request for what its model was not declared to be capable of is refused before all else."""

from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.policy import Capability, OnSaturation
from inference.openai_api.chat_request import parse_chat
from inference.openai_api.completion_request import parse_completion
from tests.support.gateways.cast import MODEL
from tests.support.gateways.saturated import saturated
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import Service, a_tier
from tests.support.gateways.websocket import ask, connected, receive

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
ASK: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Count."}]}
CONTINUE: dict[str, Any] = {"model": MODEL, "prompt": "One"}
TOOLS = {"tools": [{"type": "function", "function": {"name": "add"}}]}
JSON_OBJECT = {"response_format": {"type": "json_object"}}
CHOICE = {"structured_outputs": {"choice": ["a", "b"]}}

NEEDS: list[tuple[str, dict[str, Any], dict[Capability, str]]] = [
    (CHAT, ASK, {}),
    (CHAT, ASK | {"response_format": {"type": "text"}, "reasoning_effort": "none"}, {}),
    (CHAT, ASK | TOOLS | {"tool_choice": "none"}, {}),
    (CHAT, ASK | TOOLS, {Capability.TOOLS: "tools"}),
    (CHAT, ASK | JSON_OBJECT, {Capability.JSON_SCHEMA: "response_format"}),
    (CHAT, ASK | CHOICE, {Capability.JSON_SCHEMA: "structured_outputs"}),
    (CHAT, ASK | {"reasoning_effort": "low"}, {Capability.REASONING: "reasoning_effort"}),
    (COMPLETIONS, CONTINUE, {}),
    (COMPLETIONS, CONTINUE | CHOICE, {Capability.JSON_SCHEMA: "structured_outputs"}),
    (
        COMPLETIONS,
        CONTINUE | {"thinking_token_budget": 5},
        {Capability.REASONING: "thinking_token_budget"},
    ),
]


@pytest.mark.parametrize(("path", "body", "needs"), NEEDS)
def test_a_request_needs_what_its_fields_ask_for(
    path: str, body: dict[str, Any], needs: dict[Capability, str]
) -> None:
    parse = parse_chat if path == CHAT else parse_completion
    api = Capability.CHAT if path == CHAT else Capability.COMPLETIONS
    assert parse(msgspec.json.encode(body)).needs == {api: "model"} | needs


REFUSED = [
    (["completions"], CHAT, ASK, "model"),
    (["chat"], COMPLETIONS, CONTINUE, "model"),
    (["chat", "completions"], CHAT, ASK | TOOLS, "tools"),
    (["chat", "tools"], CHAT, ASK | JSON_OBJECT, "response_format"),
    (["chat", "tools"], CHAT, ASK | {"reasoning_effort": "high"}, "reasoning_effort"),
]


@pytest.mark.parametrize(("capabilities", "path", "body", "param"), REFUSED)
async def test_what_a_model_is_not_capable_of_is_refused_and_reserves_nothing(
    service: Service,
    dispatch_redis: Redis,
    capabilities: list[str],
    path: str,
    body: dict[str, Any],
    param: str,
) -> None:
    await service.snapshot.add_model(MODEL, capabilities=capabilities)
    async with service.client() as client:
        answer = await client.post(path, json=body)
        shown = (await client.get(f"/v1/models/{MODEL}")).json()
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("model_capability_missing", param)
    assert shown["capabilities"] == capabilities
    assert all(capability in error["message"] for capability in shown["capabilities"])
    assert not [key async for key in dispatch_redis.scan_iter(f"{keys.tenant_prefix('acme')}*")]


async def test_a_websocket_is_refused_in_the_same_way_and_lives(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    await service.snapshot.add_model(MODEL, capabilities=["chat"])
    async with connected(service, key=service.alice) as socket:
        await ask(socket, "tools", body=ASK | TOOLS)
        refused = await receive(socket)
        assert (refused["type"], refused["id"]) == ("error", "tools")
        assert refused["error"]["code"] == "model_capability_missing"
        assert refused["error"]["param"] == "tools"
        await ask(socket, "plain")
        assert (await receive(socket))["type"] == "chunk"


@pytest.mark.parametrize("capabilities", [["chat", "tools"], []])
async def test_what_a_model_is_capable_of_or_does_not_declare_is_run(
    service: Service, worker: ScriptedWorker, capabilities: list[str]
) -> None:
    await worker.start()
    await service.snapshot.add_model(MODEL, capabilities=capabilities)
    async with service.client() as client:
        answer = await client.post(CHAT, json=ASK | TOOLS)
    assert answer.status_code == 200


async def test_a_smaller_model_that_is_not_capable_of_it_does_not_answer(
    service: Service, worker: ScriptedWorker
) -> None:
    await service.snapshot.add_model("small", pool="pool-of-small", capabilities=["chat"])
    key = await service.snapshot.add_key(
        "Acme",
        tier=a_tier(ttft_target_ms=1000),
        on_saturation=OnSaturation.SMALLER_MODEL,
        smaller_model="small",
    )
    async with saturated(service, worker, MODEL), service.client(key) as client:
        answer = await client.post(CHAT, json=ASK | TOOLS)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "saturated")
