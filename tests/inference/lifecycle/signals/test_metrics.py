"""What a gateway counts of requests, by model, tier and class; never by what a client writes."""

import httpx
import pytest

from gpu_workers.protocol.messages import Outcome
from tests.support.gateways.cast import MODEL
from tests.support.gateways.chat_request import CHAT, body
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import Service, Snapshot, a_tier
from tests.support.gateways.websocket import ask, connected, receive
from tests.support.metrics import sample
from tests.support.polling import eventually

OF_ALICE = {"model": MODEL, "tier": "standard", "class": "interactive"}


def refused(code: str, **labels: str) -> float:
    return sample("penstock_gateway_refused_total", **{**OF_ALICE, **labels}, code=code)


async def test_a_request_is_counted_from_admission_to_end(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    end_to_end = "penstock_gateway_end_to_end_seconds_count"
    families = {
        "penstock_gateway_admitted_total": {"api": "chat.completions"},
        "penstock_gateway_ended_total": {"outcome": Outcome.COMPLETED.value},
        "penstock_gateway_time_to_first_token_seconds_count": {},
        end_to_end: {},
    }
    before = {name: sample(name, **OF_ALICE, **more) for name, more in families.items()}
    async with service.client() as client:
        response = await client.post(CHAT, content=body(stream=True))
    assert response.status_code == 200
    await eventually(lambda: sample(end_to_end, **OF_ALICE) > before[end_to_end])
    after = {name: sample(name, **OF_ALICE, **more) for name, more in families.items()}
    assert after == {name: count + 1 for name, count in before.items()}


async def test_a_refusal_is_counted_once_by_its_code(
    service: Service, snapshot: Snapshot, worker: ScriptedWorker
) -> None:
    await worker.start()
    key = await snapshot.add_key("Acme", tier=a_tier(requests_per_minute=1))
    code = "requests_per_minute_exceeded"
    before = refused(code)
    async with service.client(key) as client:
        assert (await client.post(CHAT, content=body())).status_code == 200
        answer = await client.post(CHAT, content=body())
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, code)
    assert refused(code) == before + 1


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"{", "invalid_request"),
        (body(model="a-model-that-nobody-serves"), "model_not_found"),
    ],
)
async def test_what_a_client_writes_is_no_label(
    service: Service, content: bytes, code: str
) -> None:
    before = refused(code, model="")
    async with service.client() as client:
        assert (await client.post(CHAT, content=content)).is_client_error
    assert refused(code, model="") == before + 1


async def test_whoever_is_not_known_is_counted_without_a_tier(service: Service) -> None:
    nobody = {"model": "", "tier": "", "class": ""}
    before = refused("invalid_api_key", **nobody)
    async with httpx.AsyncClient(base_url=service.url) as client:
        await client.post(CHAT, content=body(), headers={"Authorization": "Bearer pk-wrong"})
    assert refused("invalid_api_key", **nobody) == before + 1


async def test_whose_key_no_longer_works_is_counted_by_its_tier(
    service: Service, snapshot: Snapshot
) -> None:
    key = await snapshot.add_key("Acme", expires_at_ms=1)
    of_tier = {**OF_ALICE, "model": ""}
    before = refused("api_key_expired", **of_tier)
    async with service.client(key) as client:
        assert (await client.post(CHAT, content=body())).status_code == 401
    assert refused("api_key_expired", **of_tier) == before + 1


async def test_what_asks_for_no_completion_is_none_that_was_refused(service: Service) -> None:
    before = refused("model_not_found", model="")
    async with service.client() as client:
        assert (await client.get("/v1/models/nobodys")).status_code == 404
    assert refused("model_not_found", model="") == before


async def test_a_refusal_on_a_websocket_is_counted_too(service: Service) -> None:
    before = refused("model_not_found", model="")
    async with connected(service, key=service.alice) as socket:
        await ask(socket, "a", body={"model": "nobodys", "messages": []})
        assert (await receive(socket))["type"] == "error"
    after = refused("model_not_found", model="") + refused("invalid_request", model="")
    assert after > before
