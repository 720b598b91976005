"""Requests for adapters: whose they are, which version they get, what is told and on record."""

import asyncio
import time
from collections import Counter
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Envelope, Prices
from gpu_workers.protocol.policy import OnSaturation, PricePolicy
from inference.admission.gate import POLL_SECONDS
from tests.inference.admission.test_adapters import HOSTILE
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.saturated import saturated
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import Service, a_tier, opaque
from tests.support.gateways.websocket import ask as asked
from tests.support.gateways.websocket import connected, receive
from tests.support.polling import eventually

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 10}


@pytest.fixture
async def support(service: Service, worker: ScriptedWorker) -> None:
    """Both tenants have an adapter of this name."""
    await service.snapshot.put_adapter("acme/support", {1: 1000, 2: 0})
    await service.snapshot.put_adapter("globex/support", {1: 1000})
    await worker.start()
    await with_adapter_slots(worker)
    await is_seen(service, service.alice, "acme/support")
    await is_seen(service, service.bob, "globex/support")


async def with_adapter_slots(worker: ScriptedWorker) -> None:
    """It can run any adapter of these tests, and says so as an engine with LoRA does."""
    await worker.redis.hset(keys.pool_worker_adapters(POOL, worker.worker_id), "slots", 16)


def envelopes(worker: ScriptedWorker) -> list[Envelope]:
    """Those that it was given, in their order."""
    return [run.envelope for run in worker.runs.values()]


async def ask(service: Service, model: str, key: str | None = None, **more: Any) -> httpx.Response:
    async with service.client(key) as client:
        return await client.post(CHAT, json=ASK | {"model": model} | more)


async def listed(service: Service, key: str | None = None) -> dict[str, Any]:
    async with service.client(key) as client:
        return {row["id"]: row for row in (await client.get("/v1/models")).json()["data"]}


async def is_seen(service: Service, key: str, name: str, *, seen: bool = True) -> None:
    async def as_wanted() -> bool:
        return (name in await listed(service, key)) is seen

    assert await eventually(as_wanted, 10 * POLL_SECONDS)


def refusal(answer: httpx.Response, name: str) -> tuple[int, dict[str, Any]]:
    """What a caller is told, but for the name that it sent."""
    error = answer.json()["error"]
    return answer.status_code, error | {
        "message": error["message"].replace(repr(name[:200]), "NAME")
    }


@pytest.mark.usefixtures("support")
async def test_a_request_carries_adapter_name_and_version(
    service: Service, worker: ScriptedWorker
) -> None:
    answer = await ask(service, "acme/support")
    assert answer.status_code == 200
    assert answer.headers["x-penstock-adapter"] == "acme/support@1"
    envelope = envelopes(worker)[-1]
    assert (envelope.model, envelope.pool) == (MODEL, POOL)
    assert envelope.adapter == opaque("acme/support", 1)
    assert (envelope.adapter_name, envelope.adapter_version) == ("acme/support", 1)

    answer = await ask(service, "acme/support@2", stream=True)
    assert answer.headers["x-penstock-adapter"] == "acme/support@2"
    assert envelopes(worker)[-1].adapter == opaque("acme/support", 2)


@pytest.mark.usefixtures("support")
async def test_a_request_without_an_adapter_is_told_of_none(
    service: Service, worker: ScriptedWorker
) -> None:
    answer = await ask(service, MODEL)
    assert answer.status_code == 200
    assert "x-penstock-adapter" not in answer.headers
    assert envelopes(worker)[-1].adapter == ""


@pytest.mark.usefixtures("support")
async def test_a_websocket_tells_the_version_before_the_answer(service: Service) -> None:
    async with connected(service, key=service.alice) as socket:
        for name, body in (("a", ASK | {"model": "acme/support@2"}), ("b", ASK | {"model": MODEL})):
            await asked(socket, name, body=body)
            frames = [await receive(socket)]
            while frames[-1]["type"] not in ("done", "error"):
                frames.append(await receive(socket))
            told = [frame for frame in frames if frame["type"] == "notice"]
            assert frames[-1]["type"] == "done"
            assert told == ([frames[0]] if name == "a" else [])
            assert [frame.get("adapter") for frame in told] == ["acme/support@2"] * len(told)


@pytest.mark.usefixtures("support")
async def test_two_tenants_with_the_same_name_get_their_own(
    service: Service, worker: ScriptedWorker
) -> None:
    await ask(service, "acme/support", service.alice)
    await ask(service, "globex/support", service.bob)
    mine, theirs = envelopes(worker)
    assert mine.adapter != theirs.adapter
    assert (mine.adapter_name, theirs.adapter_name) == ("acme/support", "globex/support")


@pytest.mark.usefixtures("support")
async def test_anothers_a_missing_one_and_one_that_is_not_allowed_are_the_same_404(
    service: Service,
) -> None:
    narrow = await service.snapshot.add_key("Acme", adapters=["acme/other"])
    none = await service.snapshot.add_key("Acme", adapters=[])
    unknown = refusal(await ask(service, "no-such-model"), "no-such-model")
    assert unknown[0] == 404
    for key, name in [
        (service.alice, "globex/support"),
        (service.alice, "globex/support@1"),
        (service.alice, "globex/nothing"),
        (service.alice, "acme/nothing"),
        (service.alice, "acme/support@3"),
        (service.bob, "acme/support"),
        (narrow, "acme/support"),
        (narrow, "acme/support@1"),
        (narrow, "acme/other"),
        (none, "acme/support"),
    ]:
        answer = await ask(service, name, key)
        assert refusal(answer, name) == unknown, name
        assert "x-penstock-adapter" not in answer.headers


@pytest.mark.usefixtures("support")
@pytest.mark.parametrize("name", HOSTILE)
async def test_what_is_no_name_of_an_adapter_is_the_same_404(service: Service, name: str) -> None:
    unknown = refusal(await ask(service, "no-such-model"), "no-such-model")
    answer = await ask(service, name)
    if len(name) > 200:
        assert answer.status_code in (400, 404)
    else:
        assert refusal(answer, name) == unknown


@pytest.mark.usefixtures("support")
async def test_each_tenant_lists_its_own_with_their_parent(service: Service) -> None:
    mine = await listed(service)
    assert mine["acme/support"]["parent"] == MODEL
    assert mine["acme/support"]["owned_by"] == "acme"
    assert mine[MODEL]["parent"] is None
    assert "globex/support" not in mine
    assert set(await listed(service, service.bob)) == {MODEL, "globex/support"}
    async with service.client() as client:
        for name in ("acme/support", "acme/support@2"):
            shown = (await client.get(f"/v1/models/{name}")).json()
            assert (shown["id"], shown["parent"]) == (name, MODEL)
        for name in ("globex/support", "acme/nothing", "acme/support@3"):
            assert (await client.get(f"/v1/models/{name}")).status_code == 404


@pytest.mark.usefixtures("support")
async def test_a_key_that_lists_adapters_may_use_those_alone(service: Service) -> None:
    await service.snapshot.put_adapter("acme/other")
    await is_seen(service, service.alice, "acme/other")
    key = await service.snapshot.add_key("Acme", adapters=["acme/other"])
    assert set(await listed(service, key)) == {MODEL, "acme/other"}
    assert (await ask(service, "acme/other@1", key)).status_code == 200
    foreign = await service.snapshot.add_key("Acme", adapters=["globex/support"])
    assert set(await listed(service, foreign)) == {MODEL}
    assert (await ask(service, "globex/support", foreign)).status_code == 404


@pytest.mark.usefixtures("support")
async def test_a_key_for_some_models_uses_no_adapter_of_another_unless_it_lists_it(
    service: Service,
) -> None:
    await service.snapshot.add_model("small", pool="pool-of-small")
    narrow = await service.snapshot.add_key("Acme", models=["small"])
    await is_seen(service, narrow, "small")
    assert (await ask(service, "acme/support", narrow)).status_code == 404
    named = await service.snapshot.add_key("Acme", models=["small"], adapters=["acme/support"])
    assert (await ask(service, "acme/support", named)).status_code == 200
    assert (await ask(service, MODEL, named)).status_code == 404


@pytest.mark.usefixtures("support")
async def test_an_adapter_of_a_model_that_the_tenant_lost_is_a_404(service: Service) -> None:
    await service.snapshot.add_model(MODEL, tenant_ids=["globex"])
    await is_seen(service, service.alice, "acme/support", seen=False)
    assert (await ask(service, "acme/support")).status_code == 404


@pytest.mark.usefixtures("support")
async def test_a_row_of_anothers_under_ones_own_name_is_a_404(
    service: Service, dispatch_redis: Redis
) -> None:
    row = await dispatch_redis.hget(keys.policy_adapters(), "globex/support")
    await dispatch_redis.hset(keys.policy_adapters(), "acme/stolen", row)
    assert (await ask(service, "acme/stolen")).status_code == 404


@pytest.mark.usefixtures("support")
async def test_traffic_reaches_the_gateway_within_a_second(
    service: Service, worker: ScriptedWorker
) -> None:
    assert (await ask(service, "acme/support")).headers["x-penstock-adapter"] == "acme/support@1"
    await service.snapshot.put_adapter("acme/support", {1: 0, 2: 1000})

    async def is_promoted() -> bool:
        answer = await ask(service, "acme/support")
        assert answer.status_code == 200
        return answer.headers["x-penstock-adapter"] == "acme/support@2"

    assert await eventually(is_promoted, 1.0)
    await service.snapshot.remove_adapter("acme/support")

    async def is_gone() -> bool:
        return (await ask(service, "acme/support")).status_code == 404

    assert await eventually(is_gone, 1.0)
    await is_seen(service, service.alice, "acme/support", seen=False)


@pytest.mark.usefixtures("support")
@pytest.mark.parametrize("field", ["prompt_cache_key", "safety_identifier", "user"])
async def test_who_names_themselves_gets_the_same_version_each_time(
    service: Service, field: str
) -> None:
    await service.snapshot.put_adapter("acme/split", {1: 500, 2: 500})
    await is_seen(service, service.alice, "acme/split")

    async def versions(name: str) -> set[str]:
        answers = [await ask(service, "acme/split", **{field: name}) for _ in range(3)]
        return {answer.headers["x-penstock-adapter"] for answer in answers}

    each = [await versions(f"person-{number}") for number in range(8)]
    assert all(len(seen) == 1 for seen in each)
    assert len(set.union(*each)) == 2


@pytest.mark.usefixtures("support")
async def test_who_names_nobody_is_shared_out(service: Service) -> None:
    await service.snapshot.put_adapter("acme/split", {1: 900, 2: 100})
    await is_seen(service, service.alice, "acme/split")
    answers = [await ask(service, "acme/split") for _ in range(50)]
    counts = Counter(answer.headers["x-penstock-adapter"] for answer in answers)
    assert 4 <= counts["acme/split@2"] <= 6


@pytest.mark.usefixtures("support")
async def test_an_adapter_has_a_price_of_its_own(service: Service, worker: ScriptedWorker) -> None:
    prices = [
        PricePolicy(prompt=10, cached=5, completion=20),
        PricePolicy(prompt=30, cached=15, completion=60, adapter="acme/support"),
    ]
    await service.snapshot.add_model(MODEL, prices=prices)
    await asyncio.sleep(2 * POLL_SECONDS)
    await ask(service, "acme/support")
    await ask(service, MODEL)
    with_adapter, without = (envelope.prices for envelope in envelopes(worker))
    assert with_adapter == Prices(30, 15, 60, 1000)
    assert without == Prices(10, 5, 20, 1000)


@pytest.mark.usefixtures("support")
async def test_the_record_bears_public_name_and_version(
    service: Service, worker: ScriptedWorker
) -> None:
    await ask(service, "acme/support@2")
    (record,) = await worker.records()
    assert (record.model, record.adapter, record.adapter_version) == (MODEL, "acme/support", 2)


async def test_a_smaller_model_never_answers_for_an_adapter(
    service: Service, worker: ScriptedWorker
) -> None:
    await service.snapshot.add_model("small", pool="pool-of-small")
    await service.snapshot.put_adapter("acme/support")
    tier = a_tier(ttft_target_ms=1000)
    key = await service.snapshot.add_key(
        "Acme", tier=tier, on_saturation=OnSaturation.SMALLER_MODEL, smaller_model="small"
    )
    await is_seen(service, key, "acme/support")
    async with saturated(service, worker, MODEL):
        answer = await ask(service, "acme/support", key)
    assert answer.status_code == 429
    assert answer.json()["error"]["code"] == "saturated"


async def test_an_adapter_is_no_smaller_model(service: Service, worker: ScriptedWorker) -> None:
    await service.snapshot.add_model("small", pool="pool-of-small")
    await service.snapshot.put_adapter("acme/support", model="small")
    key = await service.snapshot.add_key(
        "Acme",
        tier=a_tier(ttft_target_ms=1000),
        on_saturation=OnSaturation.SMALLER_MODEL,
        smaller_model="acme/support",
    )
    await is_seen(service, key, "acme/support")
    async with saturated(service, worker, MODEL):
        answer = await ask(service, MODEL, key)
    assert answer.status_code == 429


@pytest.mark.usefixtures("support")
async def test_a_tenant_whose_loads_have_taken_their_part_of_the_minute_is_told_so(
    service: Service, worker: ScriptedWorker
) -> None:
    tier = a_tier(name="frugal", adapter_load_ms_per_minute=2_000)
    key = await service.snapshot.add_key("Acme", tier=tier)

    async def has_its_tier() -> bool:
        async with service.client(key) as client:
            answer = await client.get("/v1/limits")
        return answer.status_code == 200 and answer.json()["tier"] == tier.name

    assert await eventually(has_its_tier, 10 * POLL_SECONDS)
    assert (await ask(service, MODEL, key)).status_code == 200
    tenant = envelopes(worker)[-1].tenant_id
    loads: Any = {"from": time.time_ns() // 10**6, "us": 2_400_000}
    await worker.redis.hset(keys.pool_tenant_loads(POOL, tenant), mapping=loads)
    await worker.redis.expire(keys.pool_tenant_loads(POOL, tenant), 60)
    answer = await ask(service, "acme/support", key)
    assert answer.status_code == 429
    error = answer.json()["error"]
    assert error["code"] == "adapter_load_limit_reached"
    told = "for your organisation has held engines up for 2.4 s of the 2 s that tier frugal"
    assert told in error["message"]
    detail = error["penstock"]
    assert (detail["limit"], detail["used"], detail["limit_value"]) == (
        "adapter_load_ms_per_minute", 2_400, 2_000,
    )  # fmt: skip
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    assert (await ask(service, MODEL, key)).status_code == 200
