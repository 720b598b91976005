"""Every request that is refused to a known caller is counted once, by whose it was and why; nothing
that the caller sent is kept; and a flood of them costs no more memory than a few."""

import json
from typing import Any

import pytest
from redis.asyncio import Redis
from websockets.exceptions import InvalidStatus

from gpu_workers.protocol.policy import LimitName, OnSaturation, PricePolicy, Scope
from gpu_workers.protocol.refusals import UNKNOWN_MODEL, RefusalCount
from tenants import key_format
from tests.support.gateways.callers import a_limit
from tests.support.gateways.cast import MODEL
from tests.support.gateways.refused import by_code, counted, noticed, told
from tests.support.gateways.saturated import saturated
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import MAX_BODY_BYTES, Service, a_tier
from tests.support.gateways.websocket import BODY, ask, connected, receive

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Count."}],
    "max_tokens": 10,
}
SECRET = "quetzalcoatl"
WHO = {"tenant_id": "acme", "project_id": "project-of-Acme", "api_key_id": "key-of-Acme"}


async def post(service: Service, key: str, **changes: Any) -> int:
    async with service.client(key) as client:
        return (await client.post(CHAT, json=ASK | changes)).status_code


def facts(count: RefusalCount) -> dict[str, Any]:
    names = ("tenant_id", "project_id", "api_key_id", "model", "code", "limit", "scope", "count")
    return {name: getattr(count, name) for name in names}


@pytest.mark.parametrize(
    ("key", "request_", "status", "expected"),
    [
        ({"refusal": "This API key was revoked."}, {}, 401, {"code": "api_key_revoked"}),
        ({"scopes": [Scope.USAGE_READ]}, {}, 403, {"code": "missing_scope"}),
        ({"networks": ["192.0.2.0/24"]}, {}, 403, {"code": "address_not_allowed"}),
        ({}, {"model": "nothing"}, 404, {"code": "model_not_found", "model": UNKNOWN_MODEL}),
        ({}, {"temperature": "hot"}, 400, {"code": "invalid_request"}),
        ({}, {"max_tokens": 513}, 400, {"code": "invalid_request", "model": MODEL}),
        ({}, {"messages": [{"role": "user", "content": "x" * MAX_BODY_BYTES}]}, 413,
         {"code": "body_too_large"}),
        ({"limits": [a_limit(LimitName.TOKENS_PER_DAY, 1)]}, {}, 429,
         {"code": "request_exceeds_limit", "model": MODEL, "limit": "tokens_per_day",
          "scope": "key"}),
        ({"project_limits": [a_limit(LimitName.CONCURRENT_REQUESTS, 1)]}, {"n": 2}, 429,
         {"code": "request_exceeds_limit", "model": MODEL, "limit": "concurrent_requests",
          "scope": "project"}),
        ({"limits": [a_limit(LimitName.BALANCE, 0)]}, {}, 429,
         {"code": "insufficient_quota", "model": MODEL, "limit": "balance", "scope": "key"}),
    ],
)  # fmt: skip
async def test_a_refusal_over_http_is_counted_by_whose_it_is_and_why(
    service: Service,
    dispatch_redis: Redis,
    key: dict[str, Any],
    request_: dict[str, Any],
    status: int,
    expected: dict[str, str],
) -> None:
    price = PricePolicy(prompt=1000, cached=1000, completion=1000)
    await service.snapshot.add_model(MODEL, prices=[price])
    alice = await service.snapshot.add_key("Acme", **key)
    for _ in range(2):
        assert await post(service, alice, **request_) == status
    [count] = await counted(service, dispatch_redis)
    rest = {"model": "", "limit": "", "scope": "", "count": 2}
    assert facts(count) == WHO | rest | expected
    notices = await noticed(service, dispatch_redis)
    assert [(each.code, each.status) for each in notices] == [(count.code, status)] * 2
    assert all(each.request_id for each in notices)


async def test_whose_nobody_knows_and_what_was_admitted_is_not_counted(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    await worker.start()
    wrong = service.alice[:-10] + key_format.generate()[-10:]
    for key in (wrong, key_format.generate(), "hello"):
        assert await post(service, key) == 401
    assert await post(service, service.alice) == 200
    async with service.client() as client:
        assert (await client.post("/v1/nothing")).status_code == 404
        assert (await client.get(CHAT)).status_code == 405
    with pytest.raises(InvalidStatus):
        async with connected(service, key=wrong):
            pass
    assert await counted(service, dispatch_redis) == []


async def test_what_the_pool_has_no_room_for_is_counted(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    key = await service.snapshot.add_key(
        "Acme", tier=a_tier(ttft_target_ms=1000), on_saturation=OnSaturation.REFUSE
    )
    async with saturated(service, worker, MODEL):
        assert await post(service, key) == 429
    [count] = await counted(service, dispatch_redis)
    assert facts(count) == WHO | {
        "model": MODEL, "code": "saturated", "limit": "ttft_target_ms", "scope": "tier", "count": 1
    }  # fmt: skip
    [notice] = await noticed(service, dispatch_redis)
    assert notice.message.startswith(f"{MODEL} is saturated: a worker is expected")


async def test_a_request_that_is_on_record_as_expired_is_no_refusal(
    impatient_service: Service, dispatch_redis: Redis
) -> None:
    assert await post(impatient_service, impatient_service.alice) == 503
    assert await counted(impatient_service, dispatch_redis) == []


async def test_refusals_over_a_websocket_are_counted_alike(
    service: Service, dispatch_redis: Redis
) -> None:
    async with connected(service, key=service.alice) as socket:
        await ask(socket, "a", body={**BODY, "model": SECRET})
        await ask(socket, "b", body={**BODY, "temperature": SECRET})
        await socket.send(json.dumps({"type": SECRET}))
        await socket.send(json.dumps({"type": "cancel", "id": SECRET}))
        codes = {(await receive(socket))["error"]["code"] for _ in range(4)}
    assert codes == {"model_not_found", "invalid_request", "invalid_frame", "unknown_request"}
    narrow = await service.snapshot.add_key("Acme", scopes=[Scope.USAGE_READ])
    with pytest.raises(InvalidStatus):
        async with connected(service, key=narrow):
            pass
    found = by_code(await counted(service, dispatch_redis))
    assert found == {
        "model_not_found": 1, "invalid_request": 1, "invalid_frame": 1, "missing_scope": 1
    }  # fmt: skip


async def test_any_number_of_unknown_models_is_one_name_and_another_tenants_is_one_of_them(
    service: Service, dispatch_redis: Redis
) -> None:
    await service.snapshot.add_model("globex-only", tenant_ids=["globex"])
    await service.snapshot.put_adapter("globex/secret")
    await service.snapshot.put_adapter("acme/support")
    names = [*(f"model-{number}" for number in range(20)), "globex-only", "globex/secret"]
    for name in (*names, "acme/none"):
        assert await post(service, service.alice, model=name) == 404
    # Bob's, so that the process has Globex' adapter at hand, and one that Alice may call.
    assert await post(service, service.bob, model="globex/secret", max_tokens=513) == 400
    assert await post(service, service.alice, model="globex/secret") == 404
    assert await post(service, service.alice, model="acme/support@1", max_tokens=513) == 400
    found = {
        (each.tenant_id, each.model): each.count for each in await counted(service, dispatch_redis)
    }
    assert found == {
        ("acme", UNKNOWN_MODEL): len(names) + 2,
        ("acme", "acme/support"): 1,
        ("globex", "globex/secret"): 1,
    }


async def test_nothing_that_the_caller_sent_and_no_key_is_kept(
    service: Service, dispatch_redis: Redis
) -> None:
    key = key_format.generate()
    words = f"{SECRET} ' \" ` {key}"
    bodies: list[Any] = [
        {"model": words},
        {words: 1},
        {"messages": [{"role": words, "content": words}]},
        {"messages": [{"role": "user", "content": words, words: words}]},
        {"messages": [{"role": "user", "content": [{"type": words, "text": words}]}]},
        {"temperature": words},
        {"modalities": [words]},
        {"stop": [words] * 99},
        {"tools": [{"type": "function", "function": {"name": words}}]},
        {"tools": [{"type": words}]},
        {"tool_choice": words},
        {"logit_bias": {words: words}},
        {"metadata": {words: [words]}},
        {"chat_template_kwargs": {words: [words]}},
        {"chat_template_kwargs": {"messages": words}},
        {"response_format": {"type": words}},
        {"response_format": {"type": "json_schema", "json_schema": {
            "name": words, "schema": {"type": words, "pattern": words, words: words}}}},
        {"structured_outputs": {"grammar": words, "choice": [words]}},
        {"reasoning_effort": words},
        {"service_tier": [words]},
        {"user": words, "n": 10**6},
        {"echo": words},
    ]  # fmt: skip
    async with service.client() as client:
        for body in bodies:
            answer = await client.post(CHAT, json=ASK | body)
            assert 400 <= answer.status_code < 500, (body, answer.text)
        for content in (words.encode(), json.dumps(words).encode(), b'{"model": "' + b"\xff"):
            assert (await client.post(CHAT, content=content)).status_code == 400
        raw = {"model": MODEL, "prompt": [words, [words]], "suffix": words}
        assert (await client.post("/v1/completions", json=raw)).status_code == 400
        await client.get(f"/v1/models/{SECRET}")
    async with connected(service, key=service.alice) as socket:
        for frame in (
            words,
            json.dumps({"type": words, words: words}),
            json.dumps({"type": "request", "id": words, "api": words, "body": {}, words: 1}),
            json.dumps({"type": "request", "id": "a", "api": "completions", "body": {words: 1}}),
        ):
            await socket.send(frame)
            await receive(socket)
    await service.gateway.completions.admission.stop()
    batches = await told(dispatch_redis)
    assert sum(len(batch.notices) for batch in batches) == len(bodies) + 3 + 1 + 1 + 4
    everything = repr(batches)
    assert SECRET not in everything and key not in everything
    for secret in (service.alice, key_format.parse(service.alice).public_id):
        assert secret not in everything
    messages = {notice.message for batch in batches for notice in batch.notices}
    assert "The request is not valid: see its parameter 'temperature'." in messages
    assert "The request has a parameter that does not exist." in messages


async def test_one_request_too_many_on_a_websocket_is_kept_without_its_id(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    async with connected(service, key=service.alice) as socket:
        for name in ("a", "b", "c", "d", SECRET):
            await ask(socket, name)
        while (frame := await receive(socket))["type"] != "error":
            pass
        assert SECRET in frame["error"]["message"]
        [notice] = await noticed(service, dispatch_redis)
    assert notice.code == "connection_requests_exceeded"
    assert SECRET not in notice.message


async def test_a_message_of_ours_is_kept_as_the_caller_got_it(
    service: Service, dispatch_redis: Redis
) -> None:
    limits = [a_limit(LimitName.TOKENS_PER_DAY, 1)]
    key = await service.snapshot.add_key("Acme", limits=limits)
    async with service.client(key) as client:
        answer = await client.post(CHAT, json=ASK)
        too_long = await client.post(CHAT, json=ASK | {"max_tokens": 513})
    notices = await noticed(service, dispatch_redis)
    assert [notice.message for notice in notices] == [
        answer.json()["error"]["message"],
        too_long.json()["error"]["message"],
    ]
    assert [notice.request_id for notice in notices] == [
        answer.headers["x-request-id"],
        too_long.headers["x-request-id"],
    ]
