"""What callers see of their limits: headers, refusals, GET /v1/limits, and the official client."""

import asyncio
import json
import re
from typing import Any

import openai
import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.policy import LimitName, PricePolicy, Scope
from tests.support.gateways.callers import a_limit
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.scripted_worker import ScriptedWorker, talk_until_cancelled
from tests.support.gateways.service import Service, a_tier
from tests.support.gateways.websocket import ask, connected, receive
from tests.support.polling import eventually

CHAT = "/v1/chat/completions"
ASK: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Count."}],
    "max_tokens": 10,
}
# "Count." is 6 bytes, the scripted worker's template 16 tokens, the output 10.
WORST_CASE = 32
USED = 6


async def test_answers_tell_what_is_left(service: Service, worker: ScriptedWorker) -> None:
    await worker.start()
    tier = a_tier(requests_per_minute=50, tokens_per_minute=1000)
    limits = [a_limit(LimitName.REQUESTS_PER_MINUTE, 3)]
    key = await service.snapshot.add_key("Acme", tier=tier, limits=limits)
    async with service.client(key) as client:
        whole = await client.post(CHAT, json=ASK)
        streamed = await client.post(CHAT, json=ASK | {"stream": True})
        expected = {
            "limit-requests": ("3", "3"),
            "remaining-requests": ("2", "1"),
            "reset-requests": ("1m0s", "1m0s"),
            "limit-tokens": ("1000", "1000"),
        }
        for name, values in expected.items():
            header = f"x-ratelimit-{name}"
            assert (whole.headers[header], streamed.headers[header]) == values, name
        assert whole.headers["x-ratelimit-remaining-tokens"] == str(1000 - WORST_CASE)
        assert int(streamed.headers["x-ratelimit-remaining-tokens"]) <= 1000 - WORST_CASE - USED
        await client.post(CHAT, json=ASK)
        refused = await client.post(CHAT, json=ASK)
    assert refused.status_code == 429
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert refused.headers["x-ratelimit-limit-tokens"] == "1000"
    assert refused.headers["x-ratelimit-reset-requests"].endswith("s")


async def test_keys_of_one_budget_use_it_up_together_and_each_its_own(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    of_family = a_limit(LimitName.REQUESTS_PER_MINUTE, 2)
    parent = await service.snapshot.add_key("Acme", key_id="parent", limits=[of_family])
    children = [
        await service.snapshot.add_key(
            "Acme", key_id=f"child-{number}", budget_key_id="parent", limits=[of_family]
        )
        for number in range(2)
    ]
    stranger = await service.snapshot.add_key("Acme", key_id="stranger", limits=[of_family])
    statuses = []
    for key in (children[0], parent, children[1], parent, stranger):
        async with service.client(key) as client:
            statuses.append((await client.post(CHAT, json=ASK)).status_code)
    assert statuses == [200, 200, 429, 429, 200]
    async with service.client(children[1]) as client:
        (limit,) = [
            each
            for each in (await client.get("/v1/limits")).json()["data"]
            if each["scope"] == "key"
        ]
    assert limit["used"] == 2


async def test_a_full_queue_tells_what_is_left_too(service: Service, dispatch_redis: Redis) -> None:
    length = service.gateway.settings.max_queue_length
    async with service.client() as client:
        waiting = [asyncio.create_task(client.post(CHAT, json=ASK)) for _ in range(length)]

        async def is_full() -> bool:
            return bool(await dispatch_redis.zcard(keys.pool_queue(POOL)) == length)

        await eventually(is_full)
        answer = await client.post(CHAT, json=ASK)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_full")
        assert answer.headers["x-ratelimit-remaining-requests"] == str(1000 - length - 1)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


@pytest.mark.parametrize(
    ("where", "scope"), [("limits", "key"), ("project_limits", "project"), ("tenant", "tenant")]
)
async def test_a_refusal_names_limit_scope_used_and_reset(
    service: Service, worker: ScriptedWorker, where: str, scope: str
) -> None:
    await worker.start()
    limit = a_limit(LimitName.REQUESTS_PER_MINUTE, 1)
    if where == "tenant":
        key = await service.snapshot.add_key("Acme")
        await service.snapshot.put_tenant("Acme", limits=[limit])
    else:
        key = await service.snapshot.add_key("Acme", **{where: [limit]})
    async with service.client(key) as client:
        assert (await client.post(CHAT, json=ASK)).status_code == 200
        answer = await client.post(CHAT, json=ASK)
    error = answer.json()["error"]
    reset = error["penstock"].pop("reset_seconds")
    assert error["penstock"] == {
        "limit": "requests_per_minute",
        "scope": scope,
        "used": 1,
        "limit_value": 1,
    }
    assert 55 <= reset <= 60
    assert error["type"] == "rate_limit_error"
    assert error["code"] == "requests_per_minute_exceeded"
    assert answer.headers["retry-after"] == str(reset)
    assert 0 <= reset * 1000 - int(answer.headers["retry-after-ms"]) < 1000
    assert "x-should-retry" not in answer.headers


async def test_the_official_client_sees_limits_as_openais(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    limits = [a_limit(LimitName.REQUESTS_PER_MINUTE, 1)]
    key = await service.snapshot.add_key("Acme", limits=limits)
    async with openai.AsyncOpenAI(
        base_url=f"{service.url}/v1", api_key=key, max_retries=0
    ) as client:
        raw = await client.chat.completions.with_raw_response.create(**ASK)
        assert raw.headers["x-ratelimit-remaining-requests"] == "0"
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(**ASK)
    error = refused.value
    assert error.code == "requests_per_minute_exceeded"
    assert isinstance(error.body, dict)
    assert error.body["penstock"]["scope"] == "key"
    assert int(error.response.headers["retry-after"]) == error.body["penstock"]["reset_seconds"]


async def test_the_official_client_does_not_retry_what_can_never_be_admitted(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    limits = [a_limit(LimitName.TOKENS_PER_MINUTE, WORST_CASE - 1)]
    key = await service.snapshot.add_key("Acme", limits=limits)
    async with openai.AsyncOpenAI(
        base_url=f"{service.url}/v1", api_key=key, max_retries=2
    ) as client:
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(**ASK)
    assert refused.value.code == "request_exceeds_limit"
    assert refused.value.response.headers["x-should-retry"] == "false"
    assert "retry-after" not in refused.value.response.headers
    assert refused.value.request.headers.get("x-stainless-retry-count", "0") == "0"


async def test_money_is_counted_at_the_models_price_and_the_tiers_multiplier(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    # One dollar a million prompt tokens, two for the output, at one and a half the list price.
    price = PricePolicy(prompt=1_000_000, cached=500_000, completion=2_000_000)
    await service.snapshot.add_model(MODEL, prices=[price])
    worst_nanos = (22 * 1000 + 10 * 2000) * 3 // 2
    used_nanos = (3 * 1000 + 3 * 2000) * 3 // 2
    key = await service.snapshot.add_key(
        "Acme",
        tier=a_tier(price_multiplier_permille=1500),
        limits=[a_limit(LimitName.SPEND_PER_MONTH, worst_nanos + used_nanos)],
    )

    async with service.client(key) as client:

        async def spent() -> Any:
            [limit] = [
                each
                for each in (await client.get("/v1/limits")).json()["data"]
                if each["limit"] == "spend_per_month"
            ]
            return limit["used"]

        for count in (1, 2):
            assert (await client.post(CHAT, json=ASK)).status_code == 200
            while await spent() != count * used_nanos:
                pass
        refused = await client.post(CHAT, json=ASK)
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "insufficient_quota"
    assert refused.json()["error"]["type"] == "insufficient_quota"
    assert refused.headers["x-should-retry"] == "false"


async def test_a_streams_reservation_becomes_smaller_once_its_prompt_is_counted(
    service: Service, worker: ScriptedWorker
) -> None:
    worker.script = talk_until_cancelled
    await worker.start()
    limits = [a_limit(LimitName.TOKENS_PER_DAY, 10_000)]
    key = await service.snapshot.add_key("Acme", limits=limits)
    body = ASK | {"stream": True, "messages": [{"role": "user", "content": "long " * 100}]}
    async with service.client(key) as client:

        async def used() -> Any:
            [limit] = [
                each
                for each in (await client.get("/v1/limits")).json()["data"]
                if each["limit"] == "tokens_per_day"
            ]
            return limit["used"]

        async with client.stream("POST", CHAT, json=body) as answer:
            assert answer.status_code == 200

            async def is_trued_down() -> bool:
                return bool(await used() == 3 + 10)

            await eventually(is_trued_down)

        async def is_settled() -> bool:
            return bool(await used() == 3 + 1)

        await eventually(is_settled)


async def test_what_was_not_run_is_given_back(
    service: Service, dispatch_redis: Redis, impatient_service: Service
) -> None:
    limits = [a_limit(LimitName.TOKENS_PER_DAY, 10_000)]
    key = await impatient_service.snapshot.add_key("Acme", limits=limits)
    async with impatient_service.client(key) as client:
        assert (await client.post(CHAT, json=ASK)).status_code == 503

        async def is_given_back() -> bool:
            answer = (await client.get("/v1/limits")).json()
            used = {each["limit"]: each["used"] for each in answer["data"]}
            return bool(used["tokens_per_day"] == 0 and used["requests_per_minute"] == 1)

        await eventually(is_given_back)
    assert not await dispatch_redis.exists(keys.tenant_open("acme"))


def numbers_in(message: str) -> list[int]:
    """What a refusal says that no field of it does: how much the request would take."""
    return [int(number) for number in re.findall(r"\d+", message)]


async def test_several_choices_and_prompts_are_reserved_for(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    limits = [a_limit(LimitName.TOKENS_PER_DAY, 1)]
    key = await service.snapshot.add_key("Acme", limits=limits)
    asks = {
        22 + 3 * 10: (CHAT, ASK | {"n": 3}),
        22 + 64: (CHAT, {**ASK, "max_tokens": None}),
        2 * 16 + 5 + 4 * 7: (
            "/v1/completions",
            {"model": MODEL, "prompt": ["abc", "de"], "n": 2, "max_tokens": 7},
        ),
        16 + 4 + 16: ("/v1/completions", {"model": MODEL, "prompt": [1, 2, 3, 4]}),
    }
    async with service.client(key) as client:
        for tokens, (path, body) in asks.items():
            error = (await client.post(path, json=body)).json()["error"]
            assert tokens in numbers_in(error["message"]), body


async def test_no_more_is_reserved_than_fits_the_context(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start(context_tokens=500)
    limits = [a_limit(LimitName.TOKENS_PER_DAY, 1)]
    key = await service.snapshot.add_key("Acme", limits=limits)
    long = ASK | {"messages": [{"role": "user", "content": "x" * 3000}]}
    async with service.client(key) as client:
        message = (await client.post(CHAT, json=long)).json()["error"]["message"]
        assert 510 in numbers_in(message)
        await service.snapshot.put_tenant("Acme", tier=a_tier(max_context_tokens=400))

        async def is_less() -> bool:
            answer = await client.post(CHAT, json=long)
            return 410 in numbers_in(answer.json()["error"]["message"])

        await eventually(is_less)


async def test_the_tiers_context_is_enforced(service: Service, worker: ScriptedWorker) -> None:
    await worker.start(max_token_bytes=4)
    key = await service.snapshot.add_key("Acme", tier=a_tier(max_context_tokens=100))
    async with service.client(key) as client:
        long = {"messages": [{"role": "user", "content": "x" * 401}]}
        answers = [
            await client.post(CHAT, json=ASK | long),
            await client.post(CHAT, json=ASK | {"max_tokens": 100}),
        ]
        for answer in answers:
            assert answer.status_code == 400
            assert answer.json()["error"]["code"] == "context_length_exceeded"
            assert 100 in numbers_in(answer.json()["error"]["message"])
        assert (await client.post(CHAT, json=ASK)).status_code == 200
    [run] = worker.runs.values()
    assert run.envelope.max_context_tokens == 100, "the worker, which counts, judges the rest"


async def test_limits_are_told_whole(service: Service, worker: ScriptedWorker) -> None:
    await worker.start()
    key = await service.snapshot.add_key(
        "Acme",
        tier=a_tier(requests_per_minute=100, tokens_per_minute=5000),
        scopes=[Scope.USAGE_READ, Scope.INFERENCE],
        limits=[a_limit(LimitName.TOKENS_PER_MONTH, 900, is_hard=False)],
        project_limits=[a_limit(LimitName.SPEND_PER_MONTH, 10**9)],
    )
    async with service.client(key) as client:
        await client.post(CHAT, json=ASK)

        async def is_settled() -> Any:
            answer = (await client.get("/v1/limits")).json()
            month = next(each for each in answer["data"] if each["limit"] == "tokens_per_month")
            return answer if month["used"] == USED else None

        told = await eventually(is_settled)
    assert told["object"] == "limits"
    assert told["tier"] == "standard"
    assert told["tenant"] == {"id": "acme", "name": "Acme"}
    assert (told["project"]["id"], told["project"]["name"]) == ("project-of-Acme", "Web")
    assert told["api_key"]["scopes"] == ["usage:read", "inference"]
    assert told["models"] == [MODEL]
    rows = {(each["scope"], each["limit"]): each for each in told["data"]}
    assert set(rows) == {
        ("tier", "requests_per_minute"),
        ("tier", "concurrent_requests"),
        ("tier", "tokens_per_minute"),
        ("key", "tokens_per_month"),
        ("project", "spend_per_month"),
    }
    month = rows["key", "tokens_per_month"]
    assert (month["limit_value"], month["remaining"], month["is_hard"]) == (900, 894, False)
    assert month["resets_at"] % 86_400 == 0
    assert rows["tier", "requests_per_minute"]["remaining"] == 99
    assert rows["tier", "concurrent_requests"]["resets_at"] is None
    assert rows["project", "spend_per_month"]["unit"] == "nano-dollars"


async def test_a_websocket_is_told_its_limits_in_the_same_fields(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    limits = [a_limit(LimitName.REQUESTS_PER_MINUTE, 1)]
    key = await service.snapshot.add_key("Acme", limits=limits)
    async with connected(service, key=key) as socket:
        await ask(socket, "a")
        while (await receive(socket))["type"] != "done":
            pass
        await ask(socket, "b")
        frame = await receive(socket)
    assert (frame["type"], frame["id"]) == ("error", "b")
    assert frame["error"]["code"] == "requests_per_minute_exceeded"
    assert set(frame["error"]["penstock"]) == {
        "limit",
        "scope",
        "used",
        "limit_value",
        "reset_seconds",
    }
    assert json.dumps(frame["error"]["penstock"]["scope"]) == '"key"'
