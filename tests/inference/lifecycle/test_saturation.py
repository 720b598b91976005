"""What becomes of a request when the expected wait breaks the tier's TTFT target."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import openai
import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.policy import LimitName, OnSaturation, PricePolicy
from tests.support.gateways.callers import a_limit
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.saturated import HELD_MS, saturated
from tests.support.gateways.scripted_worker import ScriptedWorker
from tests.support.gateways.service import Service, a_tier
from tests.support.gateways.websocket import ask, connected, receive
from tests.support.polling import eventually

CHAT = "/v1/chat/completions"
SMALL, SMALL_POOL = "small", "pool-of-small"
ASK: dict[str, Any] = {
    "model": MODEL,
    "messages": [{"role": "user", "content": "Count."}],
    "max_tokens": 10,
}
REFUSE = {"on_saturation": OnSaturation.REFUSE}
FALL_BACK = {"on_saturation": OnSaturation.SMALLER_MODEL, "smaller_model": SMALL}
TIER = a_tier(ttft_target_ms=1000)


@pytest.fixture
async def small_worker(worker_redis_url: Callable[[str], str]) -> AsyncIterator[ScriptedWorker]:
    """Not started yet."""
    worker = ScriptedWorker(worker_redis_url(SMALL_POOL), pool=SMALL_POOL)
    yield worker
    await worker.stop()


@pytest.fixture
async def small(service: Service) -> None:
    await service.snapshot.add_model(SMALL, pool=SMALL_POOL)


async def alices(service: Service, **changes: Any) -> str:
    return await service.snapshot.add_key("Acme", tier=TIER, **changes)


async def answer_to(service: Service, key: str, **changes: Any) -> httpx.Response:
    async with service.client(key) as client:
        return await client.post(CHAT, json=ASK | changes)


async def test_a_project_that_refuses_is_told_limit_scope_used_and_reset(
    service: Service, worker: ScriptedWorker
) -> None:
    key = await alices(service, **REFUSE)
    async with saturated(service, worker, MODEL):
        answer = await answer_to(service, key)
    assert answer.status_code == 429
    assert (answer.headers["retry-after"], answer.headers["retry-after-ms"]) == ("4", "4000")
    assert answer.headers["x-ratelimit-remaining-requests"] == "999"
    error = answer.json()["error"]
    assert MODEL in error.pop("message")
    assert error == {
        "type": "rate_limit_error",
        "param": None,
        "code": "saturated",
        "penstock": {
            "limit": "ttft_target_ms",
            "scope": "tier",
            "used": HELD_MS,
            "limit_value": 1000,
            "reset_seconds": 4,
        },
    }


async def test_the_official_client_sees_a_rate_limit(
    service: Service, worker: ScriptedWorker
) -> None:
    key = await alices(service, **REFUSE)
    async with (
        saturated(service, worker, MODEL),
        openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key=key, max_retries=0) as client,
    ):
        with pytest.raises(openai.RateLimitError) as refused:
            await client.chat.completions.create(**ASK)
    assert refused.value.code == "saturated"


async def test_what_was_refused_holds_nothing(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    key = await alices(service, **REFUSE)
    async with saturated(service, worker, MODEL):
        await answer_to(service, key)

        async def is_free() -> bool:
            return not await dispatch_redis.exists(keys.tenant_reservations("acme"))

        await eventually(is_free)


async def test_a_project_that_waits_is_served_late_and_told_so(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    key = await alices(service)
    async with service.client(key) as client:
        async with saturated(service, worker, MODEL):
            waiting = [
                asyncio.create_task(client.post(CHAT, json=ASK | {"stream": stream}))
                for stream in (False, True)
            ]

            async def are_queued() -> bool:
                return bool(await dispatch_redis.zcard(keys.pool_queue(POOL)) == 2)

            await eventually(are_queued)
        answers = await asyncio.gather(*waiting)
    for answer in answers:
        assert answer.status_code == 200
        assert answer.headers["x-penstock-queue"] == "relaxed"
    waits = sorted(int(answer.headers["x-penstock-expected-wait-ms"]) for answer in answers)
    assert waits == [HELD_MS, 2 * HELD_MS]
    assert (await answer_to(service, key)).headers.get("x-penstock-queue") is None


@pytest.mark.usefixtures("small")
async def test_a_smaller_model_answers_at_its_own_pool_and_price(
    service: Service, worker: ScriptedWorker, small_worker: ScriptedWorker
) -> None:
    small_price = PricePolicy(prompt=1_000_000, cached=1_000_000, completion=2_000_000)
    await service.snapshot.add_model(MODEL, prices=[PricePolicy(prompt=5, completion=10**8)])
    await service.snapshot.add_model(SMALL, pool=SMALL_POOL, prices=[small_price])
    await small_worker.start()
    limits = [
        # It is one request, and not two.
        a_limit(LimitName.REQUESTS_PER_MINUTE, 1),
        a_limit(LimitName.SPEND_PER_MONTH, 10**9),
    ]
    key = await alices(service, limits=limits, **FALL_BACK)
    async with saturated(service, worker, MODEL):
        answer = await answer_to(service, key, stream=True)
    assert answer.status_code == 200
    assert answer.headers["x-penstock-model-instead-of"] == MODEL
    assert f'"model": "{SMALL}"' in answer.text and f'"{MODEL}"' not in answer.text
    [record] = await small_worker.records()
    assert (record.model, record.pool) == (SMALL, SMALL_POOL)
    assert answer.headers["x-request-id"] == record.request_id

    async def is_settled() -> bool:
        async with service.client(key) as client:
            rows = (await client.get("/v1/limits")).json()["data"]
        [spent] = [row["used"] for row in rows if row["limit"] == "spend_per_month"]
        return bool(spent == 3 * 1000 + 3 * 2000)

    await eventually(is_settled)


async def test_the_dearer_of_the_two_models_is_reserved(
    service: Service, worker: ScriptedWorker
) -> None:
    await service.snapshot.add_model(MODEL, prices=[PricePolicy(completion=1)])
    dear = PricePolicy(completion=10**9)
    await service.snapshot.add_model(SMALL, pool=SMALL_POOL, prices=[dear])
    await worker.start()
    # Ten tokens at a thousandth of a dollar each.
    limits = [a_limit(LimitName.SPEND_PER_MONTH, 10**7 - 1)]
    answer = await answer_to(service, await alices(service, limits=limits, **FALL_BACK))
    assert answer.json()["error"]["penstock"]["limit"] == "spend_per_month"
    limits = [a_limit(LimitName.SPEND_PER_MONTH, 10**7)]
    answer = await answer_to(service, await alices(service, limits=limits, **FALL_BACK))
    assert answer.status_code == 200


@pytest.mark.usefixtures("small")
async def test_a_request_that_nobody_takes_at_the_smaller_model_is_ended_in_time(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    impatient = a_tier(ttft_target_ms=1000, max_queue_seconds=1)
    key = await service.snapshot.add_key("Acme", tier=impatient, **FALL_BACK)
    async with saturated(service, worker, MODEL):
        answer = await answer_to(service, key)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_timeout")
    assert answer.headers["x-penstock-model-instead-of"] == MODEL
    assert await dispatch_redis.zcard(keys.pool_queue(SMALL_POOL)) == 0


@pytest.mark.usefixtures("small")
async def test_a_model_with_room_answers_itself(
    service: Service, worker: ScriptedWorker, small_worker: ScriptedWorker
) -> None:
    await worker.start()
    await small_worker.start()
    answer = await answer_to(service, await alices(service, **FALL_BACK))
    assert answer.status_code == 200
    assert "x-penstock-model-instead-of" not in answer.headers
    assert small_worker.runs == {}


@pytest.mark.usefixtures("small")
async def test_a_smaller_model_that_is_saturated_too_is_said(
    service: Service, worker: ScriptedWorker, small_worker: ScriptedWorker
) -> None:
    key = await alices(service, **FALL_BACK)
    async with saturated(service, worker, MODEL), saturated(service, small_worker, SMALL):
        answer = await answer_to(service, key)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "saturated")
    assert all(model in answer.json()["error"]["message"] for model in (MODEL, SMALL))
    assert answer.headers["retry-after"] == "4"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("seen", [[MODEL], None])
async def test_a_smaller_model_that_the_key_does_not_see_is_not_told_from_one_that_is_not_there(
    service: Service, worker: ScriptedWorker, small_worker: ScriptedWorker, seen: list[str] | None
) -> None:
    await small_worker.start()
    name = "gone" if seen is None else SMALL
    key = await alices(service, models=seen, **FALL_BACK | {"smaller_model": name})
    async with saturated(service, worker, MODEL):
        answer = await answer_to(service, key)
        async with service.client(key) as client:
            told = (await client.get("/v1/limits")).json()["project"]
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "saturated")
    message = answer.json()["error"]["message"]
    assert name not in message.replace("smaller", "")
    assert told["smaller_model"] is None
    assert small_worker.runs == {}


@pytest.mark.usefixtures("small")
async def test_the_smaller_model_itself_has_none_that_answers_instead(
    service: Service, small_worker: ScriptedWorker
) -> None:
    key = await alices(service, **FALL_BACK)
    async with saturated(service, small_worker, SMALL):
        answer = await answer_to(service, key, model=SMALL)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "saturated")


async def test_what_may_not_fit_the_smaller_model_is_not_sent_there(
    service: Service, worker: ScriptedWorker, small_worker: ScriptedWorker
) -> None:
    await service.snapshot.add_model(SMALL, pool=SMALL_POOL, context_tokens=40)
    await small_worker.start(context_tokens=40)
    key = await alices(service, **FALL_BACK)
    async with saturated(service, worker, MODEL):
        # 6 bytes of text, 16 tokens of template, and the output.
        assert (await answer_to(service, key, max_tokens=18)).status_code == 200
        answer = await answer_to(service, key, max_tokens=19)
    assert (answer.status_code, answer.json()["error"]["code"]) == (429, "saturated")
    assert len(small_worker.runs) == 1


@pytest.mark.usefixtures("small")
async def test_a_full_queue_says_when_to_come_back_and_leads_to_the_smaller_model(
    service: Service, worker: ScriptedWorker, small_worker: ScriptedWorker
) -> None:
    await small_worker.start()
    patient, falling_back = await alices(service), await alices(service, **FALL_BACK)
    length = service.gateway.settings.max_queue_length
    async with service.client(patient) as client:
        async with saturated(service, worker, MODEL):
            waiting = [asyncio.create_task(client.post(CHAT, json=ASK)) for _ in range(length)]

            async def is_full() -> bool:
                return bool(await worker.redis.zcard(keys.pool_queue(POOL)) == length)

            await eventually(is_full)
            full = await client.post(CHAT, json=ASK)
            instead = await answer_to(service, falling_back)
        assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}
    assert (full.status_code, full.json()["error"]["code"]) == (503, "queue_full")
    assert int(full.headers["retry-after"]) == (length + 1) * HELD_MS // 1000
    assert instead.status_code == 200
    assert instead.headers["x-penstock-model-instead-of"] == MODEL


@pytest.mark.usefixtures("small")
async def test_a_websocket_is_told_first(
    service: Service, worker: ScriptedWorker, small_worker: ScriptedWorker
) -> None:
    await small_worker.start()
    waits = await alices(service)
    falls_back = await alices(service, **FALL_BACK)
    refuses = await alices(service, **REFUSE)
    async with connected(service, key=waits) as socket:
        async with saturated(service, worker, MODEL):
            await ask(socket, "late")
            assert await receive(socket) == {
                "type": "notice",
                "id": "late",
                "queue": "relaxed",
                "expected_wait_ms": HELD_MS,
            }
            async with connected(service, key=falls_back) as another:
                await ask(another, "a")
                first = {"type": "notice", "id": "a", "model_instead_of": MODEL}
                assert await receive(another) == first
                assert (await receive(another))["data"]["model"] == SMALL
            async with connected(service, key=refuses) as third:
                await ask(third, "b")
                frame = await receive(third)
                assert (frame["type"], frame["error"]["code"]) == ("error", "saturated")
                assert frame["error"]["penstock"]["limit"] == "ttft_target_ms"
        assert (await receive(socket))["type"] == "chunk"


@pytest.mark.usefixtures("small")
async def test_limits_show_position_and_expected_wait_of_each_model(
    service: Service, worker: ScriptedWorker, small_worker: ScriptedWorker
) -> None:
    await small_worker.start()
    await service.snapshot.add_model("globexs", ["globex"], pool="pool-of-globex")
    await service.snapshot.add_model("unserved", pool="pool-of-nobody")
    key = await alices(service, **FALL_BACK)
    async with saturated(service, worker, MODEL), service.client(key) as client:
        told = (await client.get("/v1/limits")).json()
    assert told["ttft_target_ms"] == 1000
    assert told["project"]["on_saturation"] == "smaller_model"
    assert told["project"]["smaller_model"] == SMALL
    rows = {row.pop("model"): row for row in told["queues"]}
    assert rows == {
        MODEL: {"object": "queue", "position": 1, "expected_wait_ms": HELD_MS, "waiting": 0},
        SMALL: {"object": "queue", "position": 0, "expected_wait_ms": 0, "waiting": 0},
        "unserved": {"object": "queue", "position": 1, "expected_wait_ms": None, "waiting": 0},
    }
