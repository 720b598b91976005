"""Every admitted request ends once and is on record, also where the ordinary end did not come."""

import asyncio
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Api, Outcome
from gpu_workers.protocol.policy import Scope
from inference.dispatch.queue import RequestState
from inference.lifecycle import cancellation
from inference.lifecycle.inference_request import InferenceRequest
from tests.support.gateways.cast import MODEL, POOL, an_envelope
from tests.support.gateways.scripted_worker import Run, ScriptedWorker, talk_until_cancelled
from tests.support.gateways.service import Service
from tests.support.metrics import sample
from tests.support.polling import eventually

ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Count."}]}


async def test_a_cancellation_is_repeated_until_the_pool_has_heard_it(
    service: Service, worker: ScriptedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    dispatch = service.gateway.completions.dispatch
    cancel, attempts = dispatch.cancel, 0

    async def heard_at_last(pool: str, request_id: str) -> RequestState:
        nonlocal attempts
        attempts += 1
        if attempts < 20:
            raise RedisConnectionError("away")
        return await cancel(pool, request_id)

    monkeypatch.setattr(dispatch, "cancel", heard_at_last)
    monkeypatch.setattr(cancellation, "MAX_PAUSE_SECONDS", 0.01)
    async with service.client() as client:
        with pytest.raises(httpx.ReadTimeout):
            await client.post("/v1/chat/completions", json=ASK, timeout=0.2)
    [record] = await eventually(worker.records)
    assert record.outcome is Outcome.CANCELLED


async def test_a_cancellation_that_its_worker_never_read_is_said_again_until_the_request_ends(
    service: Service, worker: ScriptedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hear_it_the_third_time(run: Run) -> None:
        await run.say("One")
        await eventually(lambda: len(worker.cancelled) == 3)
        await run.end(Outcome.CANCELLED)

    monkeypatch.setattr(cancellation, "REPEAT_SECONDS", 0.05)
    worker.script = hear_it_the_third_time
    await worker.start()
    async with service.client() as client:
        asked = asyncio.create_task(client.post("/v1/chat/completions", json=ASK))
        await eventually(lambda: worker.runs)
        asked.cancel()
        [record] = await eventually(worker.records)
    assert record.outcome is Outcome.CANCELLED
    await eventually(lambda: not service.gateway.completions.settlement.requests.all())


async def test_a_reservation_whose_answer_was_lost_is_given_back(
    impatient_service: Service, dispatch_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    admission = impatient_service.gateway.completions.admission
    reserve = admission.reserve

    async def lose_the_answer(*args: Any, **options: Any) -> None:
        await reserve(*args, **options)
        assert await dispatch_redis.hlen(keys.tenant_reservations("acme")) == 1
        raise RedisConnectionError("away")

    monkeypatch.setattr(admission, "reserve", lose_the_answer)
    async with impatient_service.client() as client:
        assert (await client.post("/v1/chat/completions", json=ASK)).status_code == 503

    async def is_given_back() -> bool:
        return await dispatch_redis.hlen(keys.tenant_reservations("acme")) == 0

    await eventually(is_given_back)


async def test_one_reservation_that_cannot_be_settled_holds_up_no_other(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    worker.script = talk_until_cancelled
    await worker.start()
    reserved, counter = keys.tenant_reservations("acme"), "penstock_gateway_unsettled_total"
    unsettled = sample(counter)
    async with service.client() as client:
        bad = asyncio.create_task(client.post("/v1/chat/completions", json=ASK))
        await eventually(lambda: len(worker.runs) == 1)
        [bad_id] = worker.runs
        await dispatch_redis.hset(reserved, bad_id, b"\xc1 of another version")
        bad.cancel()
        good = [asyncio.create_task(client.post("/v1/chat/completions", json=ASK)) for _ in "abc"]
        await eventually(lambda: len(worker.runs) == 4)
        for each in good:
            each.cancel()

        async def are_others_settled() -> bool:
            return await dispatch_redis.hkeys(reserved) == [bad_id.encode()]

        await eventually(are_others_settled)
        async with asyncio.timeout(5):
            await service.gateway.completions.settlement.reservations.join()
    assert sample(counter) == unsettled + 1


async def test_a_request_that_its_gateway_does_not_know_is_ended_all_the_same(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    """An enqueue that reached Redis after its gateway had given it up."""
    completions = service.gateway.completions
    await worker.start()
    async with service.client() as client:
        await client.post("/v1/chat/completions", json=ASK)
    gateway_id = completions.hub.gateway_id
    late = an_envelope(gateway_id=gateway_id, seconds=-1)
    await dispatch_redis.delete(keys.pool_free_slots(POOL))
    await completions.dispatch.enqueue(late, max_queue_length=8)

    async def has_ended() -> bool:
        return late.request_id in {record.request_id for record in await worker.records()}

    await eventually(has_ended)
    assert await dispatch_redis.zcard(keys.pool_open_requests(POOL)) == 0


async def test_one_request_that_cannot_be_ended_holds_up_no_other(
    service: Service, worker: ScriptedWorker, dispatch_redis: Redis
) -> None:
    """Both are unknown to their gateway; of one the envelope is of another version."""
    completions, counter = service.gateway.completions, "penstock_gateway_unsettled_total"
    await worker.start()
    async with service.client() as client:
        await client.post("/v1/chat/completions", json=ASK)
    await dispatch_redis.delete(keys.pool_free_slots(POOL))
    unsettled = sample(counter)
    gateway_id = completions.hub.gateway_id
    odd, good = (an_envelope(gateway_id=gateway_id, seconds=each) for each in (60, 1))
    await completions.dispatch.enqueue(odd, max_queue_length=8)
    await dispatch_redis.hset(keys.pool_request(POOL, odd.request_id), "envelope", b"\xc1")
    waiting = keys.pool_gateway_waiting(POOL, gateway_id)
    await dispatch_redis.zadd(waiting, {odd.request_id: 1})
    await completions.dispatch.enqueue(good, max_queue_length=8)

    async def has_ended() -> bool:
        return good.request_id in {record.request_id for record in await worker.records()}

    await eventually(has_ended)
    assert await dispatch_redis.zrange(waiting, 0, -1) == [odd.request_id.encode()]
    assert sample(counter) == unsettled + 1


async def test_a_request_that_was_on_its_way_in_when_the_gateway_stopped_is_cancelled(
    service: Service, worker: ScriptedWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    completions = service.gateway.completions
    worker.script = talk_until_cancelled
    await worker.start()
    is_at_the_gate, gate = asyncio.Event(), asyncio.Event()
    enqueue = completions.dispatch.enqueue

    async def wait_at_the_gate(*args: Any, **options: Any) -> Any:
        is_at_the_gate.set()
        await gate.wait()
        return await enqueue(*args, **options)

    monkeypatch.setattr(completions.dispatch, "enqueue", wait_at_the_gate)
    caller = await completions.admission.authenticate(
        f"Bearer {service.alice}", address=None, scope=Scope.INFERENCE
    )
    request = InferenceRequest(
        api=Api.CHAT_COMPLETIONS, model=MODEL, stream=True, body=b"{}", output_tokens=None,
        output_param="max_tokens", prompt_bytes=1, prompt_param="messages", prompt_bound=1,
    )  # fmt: skip
    beginning = asyncio.create_task(completions.begin(caller, request))
    await is_at_the_gate.wait()
    stopping = asyncio.create_task(completions.stop())
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(beginning, stopping)
    [record] = await worker.records()
    assert record.outcome is Outcome.CANCELLED
