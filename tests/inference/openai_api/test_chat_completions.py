"""POST /v1/chat/completions and /v1/completions over a live server: what clients see."""

import asyncio
import json
from typing import Any

import httpx
import openai
import pytest
from redis.asyncio import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Outcome, WireError
from tests.support.gateways.cast import MODEL, POOL
from tests.support.gateways.scripted_worker import Run, ScriptedWorker, talk_until_cancelled
from tests.support.gateways.service import Service, a_tier
from tests.support.polling import eventually

CHAT = "/v1/chat/completions"
ALICE_ASKS = {"model": MODEL, "messages": [{"role": "user", "content": "Count."}]}
ALICE_STREAMS = {**ALICE_ASKS, "stream": True}


def text_of(events: str) -> str:
    chunks = [json.loads(line[6:]) for line in events.splitlines() if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)


async def test_a_stream_ends_with_done(service: Service, worker: ScriptedWorker) -> None:
    await worker.start()
    async with service.client() as client:
        response = await client.post(CHAT, json=ALICE_STREAMS)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["cache-control"] == "no-cache, no-transform"
    assert response.headers["x-accel-buffering"] == "no"
    assert text_of(response.text) == "One two three"
    assert response.text.endswith("data: [DONE]\n\n")
    assert f"chatcmpl-{response.headers['x-request-id']}" in response.text


async def test_an_answer_that_does_not_stream_is_the_workers_own(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    async with service.client() as client:
        response = await client.post(CHAT, json=ALICE_ASKS)
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"] == "One two three"
    assert response.json()["id"] == f"chatcmpl-{response.headers['x-request-id']}"


async def test_a_clients_request_id_is_ignored(service: Service, worker: ScriptedWorker) -> None:
    await worker.start()
    async with service.client() as client:
        response = await client.post(CHAT, json=ALICE_ASKS, headers={"X-Request-Id": "mine"})
    assert response.headers["x-request-id"] in worker.runs


async def test_the_envelope_is_rebuilt_and_bounded(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    async with service.client() as client, service.client(service.bob) as bob:
        await client.post(CHAT, json={**ALICE_ASKS, "user": "alice", "metadata": {"a": "b"}})
        await client.post(CHAT, json={**ALICE_ASKS, "max_tokens": 7, "top_k": 3})
        await bob.post(CHAT, json=ALICE_ASKS)
    default, asked, bobs = [run.envelope for run in worker.runs.values()]
    assert json.loads(default.body) == ALICE_ASKS
    assert default.max_output_tokens == 64
    assert asked.max_output_tokens == 7
    assert json.loads(asked.body) == {**ALICE_ASKS, "max_tokens": 7, "top_k": 3}
    assert default.cache_salt == asked.cache_salt != bobs.cache_salt
    assert (default.tenant_id, bobs.tenant_id) == ("acme", "globex")
    assert len(default.cache_salt) == 64


async def test_the_envelope_tells_the_scheduler_weight_class_and_bounds(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    key = await service.snapshot.add_key("Acme", tier=a_tier(weight=4, service_class="batch"))
    async with service.client(key) as client:
        await client.post(CHAT, json={**ALICE_ASKS, "max_tokens": 7, "n": 2})
    [envelope] = [run.envelope for run in worker.runs.values()]
    assert (envelope.weight, envelope.service_class) == (4, "batch")
    assert envelope.output_bound == 14
    assert 0 < envelope.prompt_bound < 200


async def test_the_engine_runs_class_after_class_and_within_one_by_the_tiers_priority(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    tiers = [
        a_tier(service_class="interactive", priority=-32768),
        a_tier(service_class="interactive", priority=32767),
        a_tier(service_class="code", priority=-32768),
        a_tier(service_class="documents", priority=0),
        a_tier(service_class="batch", priority=-1),
    ]
    for number, tier in enumerate(tiers):
        key = await service.snapshot.add_key(f"Tenant {number}", tier=tier)
        async with service.client(key) as client:
            await client.post(CHAT, json=ALICE_ASKS)
    priorities = [run.envelope.priority for run in worker.runs.values()]
    assert len(priorities) == 5
    assert priorities == sorted(set(priorities))


async def test_completions_take_a_prompt(service: Service, worker: ScriptedWorker) -> None:
    await worker.start()
    async with service.client() as client:
        whole = await client.post("/v1/completions", json={"model": MODEL, "prompt": "Count"})
        stream = await client.post(
            "/v1/completions", json={"model": MODEL, "prompt": [1, 2], "stream": True}
        )
    assert whole.json()["choices"][0]["text"] == "One two three"
    assert stream.text.count('"text"') == 3
    assert worker.runs[whole.headers["x-request-id"]].envelope.max_output_tokens == 16


async def test_the_official_client_streams_and_waits(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    messages: Any = ALICE_ASKS["messages"]
    async with openai.AsyncOpenAI(base_url=f"{service.url}/v1", api_key=service.alice) as client:
        whole = await client.chat.completions.create(model=MODEL, messages=messages)
        assert whole.choices[0].message.content == "One two three"
        stream = await client.chat.completions.create(model=MODEL, messages=messages, stream=True)
        words = [chunk.choices[0].delta.content async for chunk in stream]
        assert words == ["One", " two", " three"]
        assert [model.id async for model in client.models.list()] == [MODEL]


async def test_the_official_sync_client_works(service: Service, worker: ScriptedWorker) -> None:
    await worker.start()

    def ask() -> list[str | None]:
        with openai.OpenAI(base_url=f"{service.url}/v1", api_key=service.alice) as client:
            stream = client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "Count."}], stream=True
            )
            return [chunk.choices[0].delta.content for chunk in stream]

    assert await asyncio.to_thread(ask) == ["One", " two", " three"]


async def test_every_request_is_one_record_and_its_reservation_is_released(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    await worker.start()
    async with service.client() as client:
        await asyncio.gather(*(client.post(CHAT, json=ALICE_STREAMS) for _ in range(5)))
    records = await worker.records()
    assert [record.outcome for record in records] == [Outcome.COMPLETED] * 5
    assert {record.tenant_id for record in records} == {"acme"}
    await eventually(lambda: no_reservations(dispatch_redis))


async def no_reservations(redis: Redis, tenant_id: str = "acme") -> bool:
    return await redis.hlen(keys.tenant_reservations(tenant_id)) == 0


async def test_a_refusal_of_the_worker_keeps_its_status(
    service: Service, worker: ScriptedWorker
) -> None:
    async def refuse(run: Run) -> None:
        error = WireError(
            status=400,
            message="The regex is not valid.",
            type="invalid_request_error",
            code="bad_grammar",
            param="structured_outputs",
        )
        await run.end(Outcome.REFUSED, error=error)

    worker.script = refuse
    await worker.start()
    async with service.client() as client:
        for body in (ALICE_ASKS, ALICE_STREAMS):
            response = await client.post(CHAT, json=body)
            assert response.status_code == 400
            assert response.json()["error"]["code"] == "bad_grammar"
            assert response.headers["x-request-id"]


async def test_a_refusal_of_the_worker_says_when_to_ask_again(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    async def refuse(run: Run) -> None:
        error = WireError(
            status=429,
            message="Your other schemas are ahead.",
            type="rate_limit_error",
            code="structures_waiting",
            retry_after_seconds=2,
        )
        await run.end(Outcome.REFUSED, error=error)

    worker.script = refuse
    await worker.start()
    async with service.client() as client:
        for body in (ALICE_ASKS, ALICE_STREAMS):
            response = await client.post(CHAT, json=body)
            assert response.status_code == 429
            assert response.json()["error"]["code"] == "structures_waiting"
            assert response.headers["retry-after"] == "2"
    await eventually(lambda: no_reservations(dispatch_redis))


async def test_a_client_that_leaves_cancels_its_request(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    worker.script = talk_until_cancelled
    await worker.start()
    async with (
        service.client() as client,
        client.stream("POST", CHAT, json=ALICE_STREAMS) as response,
    ):
        await anext(response.aiter_bytes())
    [record] = await eventually(worker.records)
    assert record.outcome is Outcome.CANCELLED
    assert record.usage.completion_tokens == 1
    await eventually(lambda: no_reservations(dispatch_redis))


async def test_a_client_that_leaves_the_queue_is_recorded(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    async with service.client() as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.post(CHAT, json=ALICE_ASKS, timeout=0.2)
    [record] = await eventually(worker.records)
    assert (record.outcome, record.attempt) == (Outcome.CANCELLED, 0)
    await eventually(lambda: no_reservations(dispatch_redis))
    assert await dispatch_redis.zcard(keys.pool_queue(POOL)) == 0


async def test_a_request_that_waited_too_long_is_told_when_to_come_back(
    impatient_service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    async with impatient_service.client() as client:
        response = await client.post(CHAT, json=ALICE_ASKS)
    assert response.status_code == 503
    assert int(response.headers["retry-after"]) > 0
    assert response.json()["error"]["code"] == "queue_timeout"
    [record] = await worker.records()
    assert record.outcome is Outcome.EXPIRED
    await eventually(lambda: no_reservations(dispatch_redis))


async def test_requests_wait_for_a_worker_that_is_starting(
    service: Service, worker: ScriptedWorker
) -> None:
    async with service.client() as client:
        asked = asyncio.create_task(client.post(CHAT, json=ALICE_ASKS))
        await eventually(lambda: worker.redis.zcard(keys.pool_queue(POOL)))
        await worker.start()
        assert (await asked).status_code == 200


async def test_a_full_queue_is_a_503(service: Service, worker: ScriptedWorker) -> None:
    async with service.client() as client:
        waiting = [asyncio.create_task(client.post(CHAT, json=ALICE_ASKS)) for _ in range(8)]
        await eventually(lambda: has_length(worker.redis, 8))
        response = await client.post(CHAT, json=ALICE_ASKS)
        assert response.status_code == 503
        assert response.json()["error"]["code"] == "queue_full"
        assert response.headers["retry-after"]
        await worker.start()
        assert {answer.status_code for answer in await asyncio.gather(*waiting)} == {200}


async def has_length(redis: Redis, length: int) -> bool:
    return await redis.zcard(keys.pool_queue(POOL)) == length


async def test_a_dead_worker_is_a_typed_error_event_where_no_other_can_go_on(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    worker.script = talk_until_cancelled
    await worker.start()
    async with (
        service.client() as client,
        client.stream("POST", CHAT, json=ALICE_STREAMS | {"stop": "ten"}) as answer,
    ):
        parts = answer.aiter_text()
        assert "One" in await anext(parts)
        await worker.die()
        rest = "".join([part async for part in parts])
    assert json.loads(rest.removeprefix("data: "))["error"]["code"] == "worker_lost"
    [record] = await worker.records()
    assert (record.outcome, record.error_code) == (Outcome.FAILED, "worker_lost")
    assert record.usage.completion_tokens == 1
    await eventually(lambda: no_reservations(dispatch_redis))


async def test_a_missing_frame_that_the_worker_keeps_no_longer_ends_the_stream_typed(
    service: Service, worker: ScriptedWorker
) -> None:
    async def lose_one(run: Run) -> None:
        await run.say("One")
        await run.say(" three", seq=2)
        [demand] = await eventually(lambda: worker.demands)
        await run.say_unkept(demand)
        await run.cancelled.wait()
        await run.end(Outcome.CANCELLED)

    worker.script = lose_one
    await worker.start()
    async with service.client() as client:
        response = await client.post(CHAT, json=ALICE_STREAMS | {"stop": "ten"})
    assert '"stream_broken"' in response.text
    assert "three" not in response.text
    assert "[DONE]" not in response.text
    await eventually(worker.records)


async def test_frames_of_an_old_attempt_and_repeated_ones_are_dropped(
    service: Service, worker: ScriptedWorker
) -> None:
    async def repeat(run: Run) -> None:
        run.seq = 0
        await run.say(" stale", attempt=0, seq=0)
        await run.say("One", seq=0)
        await run.say(" again", seq=0)
        run.seq = 1
        await run.end()

    worker.script = repeat
    await worker.start()
    async with service.client() as client:
        response = await client.post(CHAT, json=ALICE_STREAMS)
    assert text_of(response.text) == "One"
    assert "[DONE]" in response.text


async def test_an_end_that_never_arrived_is_found_out(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    """A worker that dies between `finish` and its last frame."""

    async def die_after_finish(run: Run) -> None:
        await run.say("One")
        await run.finish()
        await worker.lose_its_lease()

    worker.script = die_after_finish
    await worker.start()
    async with service.client() as client:
        response = await client.post(CHAT, json=ALICE_STREAMS)
    assert '"worker_lost"' in response.text
    assert len(await worker.records()) == 1
    await eventually(lambda: no_reservations(dispatch_redis))


async def test_limits_say_which_one_whose_and_when(
    service: Service, worker: ScriptedWorker
) -> None:
    await worker.start()
    key = await service.snapshot.add_key("Acme", tier=a_tier(requests_per_minute=2))
    async with service.client(key) as client:
        answers = [await client.post(CHAT, json=ALICE_ASKS) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200, 200, 429]
    error = answers[2].json()["error"]
    assert error["code"] == "requests_per_minute_exceeded"
    assert (error["penstock"]["scope"], error["penstock"]["limit_value"]) == ("tier", 2)
    assert 55 <= int(answers[2].headers["retry-after"]) <= 60


async def test_requests_at_once_are_limited_and_freed(
    service: Service, worker: ScriptedWorker
) -> None:
    worker.script = talk_until_cancelled
    await worker.start()
    key = await service.snapshot.add_key("Acme", tier=a_tier(max_concurrent_requests=1))
    async with service.client(key) as client:
        async with client.stream("POST", CHAT, json=ALICE_STREAMS) as first:
            await anext(first.aiter_bytes())
            second = await client.post(CHAT, json=ALICE_ASKS)
            assert second.status_code == 429
            assert second.json()["error"]["code"] == "concurrent_requests_exceeded"
        await eventually(worker.records)

        async def is_admitted() -> bool:
            async with client.stream("POST", CHAT, json=ALICE_STREAMS) as answer:
                return answer.status_code == 200

        assert await eventually(is_admitted)
