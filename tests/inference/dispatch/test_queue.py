"""dispatch.lua and its Python face, over a real Redis."""

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Assignment, Cancellation, Outcome
from inference.dispatch.answers import AlreadyKnown, Assigned, Queued, QueueFull
from inference.dispatch.queue import Dispatch, RequestState, usage_entry
from tests.support.dispatch.bare_calls import WORKER, Workers, enqueue, finish
from tests.support.gateways.cast import POOL, an_envelope


async def leftovers(redis: Redis) -> set[str]:
    """The keys of the pool that hold something about requests which are not finished."""
    found = {key.decode() async for key in redis.scan_iter(match="{m:*")}
    of_workers = {"names", "heartbeats", "workers", "free-slots", "slots", "worker"}
    of_shares = {"scheduler", "flow", "active"}
    kept = {"usage", "gateways", "identity", *of_workers, *of_shares}
    return {key for key in found if key.split(":")[2] not in {*kept, "request"}}


async def test_a_request_waits_where_no_worker_has_a_slot(dispatch: Dispatch) -> None:
    assert await enqueue(dispatch, "a") == Queued(position=1)
    assert await enqueue(dispatch, "b") == Queued(position=2)


async def test_a_free_worker_is_given_the_request_at_once(
    dispatch: Dispatch, workers: Workers
) -> None:
    await workers.register()
    assert await workers.claim() == []
    envelope = an_envelope(request_id="a")
    assert await dispatch.enqueue(envelope, max_queue_length=0) == Assigned(worker_id=WORKER)
    [assignment] = await workers.inbox()
    assert isinstance(assignment, Assignment)
    assert (assignment.request_id, assignment.attempt) == ("a", 1)
    assert codec.decode_envelope(assignment.envelope) == envelope


async def test_the_worker_with_most_credit_gets_the_next_request(
    dispatch: Dispatch, workers: Workers
) -> None:
    for worker_id, slots in [("small#1", 1), ("large#1", 3)]:
        await workers.register(worker_id)
        await workers.claim(worker_id, slots=slots)
    chosen = [await enqueue(dispatch, name) for name in "abcd"]
    assert sorted(answer.worker_id for answer in chosen) == ["large#1"] * 3 + ["small#1"]
    assert chosen[0].worker_id == "large#1"
    assert await enqueue(dispatch, "e") == Queued(position=1)


async def test_a_claim_takes_the_queue_in_order_and_no_more_than_the_slots(
    dispatch: Dispatch, workers: Workers
) -> None:
    for name in "abc":
        await enqueue(dispatch, name)
    await workers.register()
    assert [message.request_id for message in await workers.claim(slots=2)] == ["a", "b"]
    assert await workers.claim(slots=2) == []


async def test_a_worker_that_is_not_ready_is_given_nothing(
    dispatch: Dispatch, workers: Workers
) -> None:
    await workers.register()
    await workers.claim()
    await workers.claim(ready=False)
    assert await enqueue(dispatch, "a") == Queued(position=1)
    assert await workers.claim(ready=False) == []


async def test_a_dead_workers_credit_counts_for_nothing(
    dispatch: Dispatch, workers: Workers
) -> None:
    await workers.register()
    await workers.claim()
    await workers.die()
    assert await enqueue(dispatch, "a") == Queued(position=1)


async def test_enqueue_is_idempotent(dispatch: Dispatch, workers: Workers) -> None:
    await enqueue(dispatch, "a")
    assert await enqueue(dispatch, "a") == AlreadyKnown(state="queued")
    await workers.register()
    assert len(await workers.claim()) == 1
    assert await enqueue(dispatch, "a") == AlreadyKnown(state="running")


async def test_a_full_queue_refuses(dispatch: Dispatch) -> None:
    assert await dispatch.enqueue(an_envelope(), max_queue_length=1) == Queued(position=1)
    assert await dispatch.enqueue(an_envelope(), max_queue_length=1) == QueueFull(length=1)


async def test_finish_is_accepted_once_and_leaves_one_record(
    dispatch: Dispatch, workers: Workers, dispatch_redis: Redis
) -> None:
    await workers.register()
    await workers.claim()
    await enqueue(dispatch, "a")
    await workers.inbox()
    assert await finish(dispatch, "a", 1)
    assert not await finish(dispatch, "a", 1, Outcome.FAILED)
    assert await dispatch_redis.xlen(keys.pool_usage(POOL)) == 1
    assert await leftovers(dispatch_redis) == set()
    assert 0 < await dispatch_redis.ttl(keys.pool_request(POOL, "a")) <= 600
    assert not await dispatch_redis.hexists(keys.pool_request(POOL, "a"), "envelope")


async def test_a_repeated_finish_is_accepted_again_and_recorded_once(
    dispatch: Dispatch, workers: Workers, dispatch_redis: Redis
) -> None:
    await workers.register()
    await workers.claim()
    await enqueue(dispatch, "a")
    entry = usage_entry(
        an_envelope(request_id="a"), attempt=1, outcome=Outcome.COMPLETED, error_code=None
    )
    assert await dispatch.finish(entry)
    assert await dispatch.finish(entry)
    assert await dispatch_redis.xlen(keys.pool_usage(POOL)) == 1


@pytest.mark.parametrize("attempt", [0, 2, 7])
async def test_another_attempt_than_the_current_one_cannot_finish(
    dispatch: Dispatch, workers: Workers, attempt: int
) -> None:
    await workers.register()
    await workers.claim()
    await enqueue(dispatch, "a")
    assert not await finish(dispatch, "a", attempt)
    assert await finish(dispatch, "a", 1)


async def test_an_unknown_request_cannot_be_finished(dispatch: Dispatch) -> None:
    assert not await finish(dispatch, "nobody", 0)


async def test_a_queued_request_is_finished_as_attempt_0_and_no_worker_gets_it(
    dispatch: Dispatch, workers: Workers, dispatch_redis: Redis
) -> None:
    await enqueue(dispatch, "a")
    assert not await finish(dispatch, "a", 1)
    assert await finish(dispatch, "a", 0, Outcome.EXPIRED)
    await workers.register()
    assert await workers.claim() == []
    assert await leftovers(dispatch_redis) == set()


async def test_a_finished_requests_slot_goes_to_the_next_in_the_queue(
    dispatch: Dispatch, workers: Workers
) -> None:
    await workers.register()
    await workers.claim(slots=1)
    await enqueue(dispatch, "a")
    await enqueue(dispatch, "b")
    await workers.inbox()
    await finish(dispatch, "a", 1)
    assert [message.request_id for message in await workers.inbox()] == ["b"]
    await finish(dispatch, "b", 1)
    assert await enqueue(dispatch, "c") == Assigned(worker_id=WORKER)
    assert isinstance(await enqueue(dispatch, "d"), Queued)


async def test_a_request_past_its_deadline_is_given_to_nobody(
    dispatch: Dispatch, workers: Workers
) -> None:
    await enqueue(dispatch, "late", seconds=-1)
    await enqueue(dispatch, "a")
    await workers.register()
    assert [message.request_id for message in await workers.claim()] == ["a"]
    assert await finish(dispatch, "late", 0, Outcome.EXPIRED)


async def test_cancel_of_a_running_request_reaches_its_worker(
    dispatch: Dispatch, workers: Workers
) -> None:
    await workers.register()
    await workers.claim()
    await enqueue(dispatch, "a")
    await workers.inbox()
    assert await dispatch.cancel(POOL, "a") is RequestState.RUNNING
    assert await workers.inbox() == [Cancellation(request_id="a", attempt=1)]


async def test_a_cancelled_queued_request_is_not_claimed_before_it_is_finished(
    dispatch: Dispatch, workers: Workers
) -> None:
    await enqueue(dispatch, "a")
    assert await dispatch.cancel(POOL, "a") is RequestState.QUEUED
    await workers.register()
    assert await workers.claim() == []
    assert await finish(dispatch, "a", 0, Outcome.CANCELLED)
    assert await dispatch.cancel(POOL, "a") is RequestState.TERMINAL


async def test_cancel_of_an_unknown_request_says_so(dispatch: Dispatch) -> None:
    assert await dispatch.cancel(POOL, "nobody") is RequestState.UNKNOWN


async def test_a_restarted_worker_fences_its_earlier_self(
    dispatch: Dispatch, workers: Workers
) -> None:
    await workers.register("worker-1#a")
    await workers.claim("worker-1#a")
    await enqueue(dispatch, "a")
    assert await workers.register("worker-1#b") == [b"worker-1#a"]
    for call in (workers.claim, workers.register):
        with pytest.raises(ResponseError, match="FENCED"):
            await call("worker-1#a")
    [stranded] = await dispatch.reap(POOL, gateway_id="gateway-1")
    assert (stranded.request_id, stranded.worker_id) == ("a", "worker-1#a")
    assert await workers.claim("worker-1#b") == []


async def test_a_fenced_workers_attempt_may_still_end_itself(
    dispatch: Dispatch, workers: Workers
) -> None:
    await workers.register("worker-1#a")
    await workers.claim("worker-1#a")
    await enqueue(dispatch, "a")
    await workers.register("worker-1#b")
    assert await finish(dispatch, "a", 1)
    assert await dispatch.reap(POOL, gateway_id="gateway-1") == []


async def test_a_worker_that_redis_has_lost_is_told_to_register(workers: Workers) -> None:
    with pytest.raises(ResponseError, match="UNKNOWN"):
        await workers.claim()


async def test_registering_again_is_no_fence(workers: Workers) -> None:
    await workers.register()
    assert await workers.register() == []
    assert await workers.claim() == []


async def test_a_worker_can_ask_for_what_it_holds(dispatch: Dispatch, workers: Workers) -> None:
    await workers.register()
    await workers.claim()
    await enqueue(dispatch, "a")
    assert await workers.held() == await workers.inbox()
    await finish(dispatch, "a", 1)
    assert await workers.held() == []


async def test_functions_come_back_after_redis_lost_them(
    dispatch: Dispatch, dispatch_redis: Redis
) -> None:
    await dispatch_redis.function_flush()
    assert await enqueue(dispatch, "a") == Queued(position=1)
