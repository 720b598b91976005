"""dispatch.lua and its Python face, over a real Redis."""

import time
from typing import Any, cast

import pytest
from msgspec import structs
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Assignment, Cancellation, InboxMessage, Outcome
from inference.dispatch.queue import (
    AlreadyKnown,
    Assigned,
    Dispatch,
    Queued,
    QueueFull,
    RequestState,
    end_abandoned,
    usage_entry,
)
from tests.support.gateways.cast import POOL, an_envelope, encoded_worker_info

WORKER = "worker-1#a"
LONG_AGO = 3_600_000


class Workers:
    """The worker's side of dispatch, as bare function calls."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis

    async def register(self, worker_id: str = WORKER) -> list[bytes]:
        name = worker_id.partition("#")[0]
        info = encoded_worker_info(worker_id)
        fenced: list[bytes] = await self._call(keys.FUNCTION_REGISTER, worker_id, name, info)
        return fenced

    async def claim(
        self, worker_id: str = WORKER, *, slots: int = 4, ready: bool = True
    ) -> list[InboxMessage]:
        info = encoded_worker_info(worker_id)
        answer = await self._call(keys.FUNCTION_CLAIM, worker_id, info, slots, 0, 0, "", int(ready))
        return [codec.decode_inbox(message) for message in answer]

    async def held(self, worker_id: str = WORKER) -> list[InboxMessage]:
        answer = await self._call(keys.FUNCTION_HELD, worker_id)
        return [codec.decode_inbox(message) for message in answer]

    async def inbox(self, worker_id: str = WORKER) -> list[InboxMessage]:
        key = keys.pool_inbox(POOL, worker_id)
        messages = cast(list[bytes], await self.redis.lrange(key, 0, -1))
        await self.redis.delete(key)
        return [codec.decode_inbox(message) for message in messages]

    async def die(self, worker_id: str = WORKER, *, ago_ms: int = 60_000) -> None:
        now_ms = time.time_ns() // 1_000_000
        await self.redis.zadd(keys.pool_heartbeats(POOL), {worker_id: now_ms - ago_ms})

    async def _call(self, function: str, *arguments: Any) -> Any:
        return await self.redis.fcall(function, 1, keys.pool_prefix(POOL), *arguments)


@pytest.fixture
def dispatch(dispatch_redis: Redis) -> Dispatch:
    return Dispatch(dispatch_redis)


@pytest.fixture
def workers(dispatch_redis: Redis) -> Workers:
    return Workers(dispatch_redis)


async def enqueue(dispatch: Dispatch, request_id: str, **changes: Any) -> Any:
    envelope = an_envelope(request_id=request_id, **changes)
    return await dispatch.enqueue(envelope, max_queue_length=10)


async def finish(
    dispatch: Dispatch, request_id: str, attempt: int, outcome: Outcome = Outcome.COMPLETED
) -> bool:
    envelope = an_envelope(request_id=request_id)
    entry = usage_entry(envelope, attempt=attempt, outcome=outcome, error_code=None)
    return await dispatch.finish(entry)


async def leftovers(redis: Redis) -> set[str]:
    """The keys of the pool that hold something about requests which are not finished."""
    found = {key.decode() async for key in redis.scan_iter(match="{m:*")}
    of_workers = {"names", "heartbeats", "workers", "free-slots", "slots"}
    of_shares = {"scheduler", "flow", "active"}
    kept = {"usage", *of_workers, *of_shares}
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
    [stranded] = await dispatch.reap(POOL)
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
    assert await dispatch.reap(POOL) == []


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


async def test_reap_names_what_a_dead_worker_held_and_changes_nothing(
    dispatch: Dispatch, workers: Workers
) -> None:
    await workers.register()
    await workers.claim()
    await enqueue(dispatch, "a")
    assert await dispatch.reap(POOL) == []
    await workers.die()
    for _ in range(2):
        [stranded] = await dispatch.reap(POOL)
        assert (stranded.request_id, stranded.attempt) == ("a", 1)
        assert stranded.state is RequestState.RUNNING
        assert stranded.gateway_id == "gateway-1"
        assert codec.decode_envelope(stranded.envelope).request_id == "a"
    assert await finish(dispatch, "a", 1, Outcome.FAILED)
    assert await dispatch.reap(POOL) == []


async def test_reap_names_only_the_asking_gateways_requests(
    dispatch: Dispatch, workers: Workers
) -> None:
    await workers.register()
    await workers.claim()
    await enqueue(dispatch, "a", gateway_id="gateway-1")
    await enqueue(dispatch, "b", gateway_id="gateway-2")
    await workers.die()
    [stranded] = await dispatch.reap(POOL, gateway_id="gateway-2")
    assert stranded.request_id == "b"
    assert len(await dispatch.reap(POOL, limit=1)) == 1


async def test_reap_names_what_waited_beyond_deadline_and_grace(dispatch: Dispatch) -> None:
    await enqueue(dispatch, "late", seconds=-5)
    await enqueue(dispatch, "a")
    assert await dispatch.reap(POOL, grace_ms=60_000) == []
    [stranded] = await dispatch.reap(POOL, grace_ms=1_000)
    assert (stranded.request_id, stranded.attempt) == ("late", 0)
    assert stranded.state is RequestState.QUEUED


async def test_reap_forgets_a_worker_that_is_long_dead(
    dispatch: Dispatch, workers: Workers, dispatch_redis: Redis
) -> None:
    await workers.register()
    await workers.die(ago_ms=LONG_AGO)
    await dispatch.reap(POOL)
    assert not await dispatch_redis.exists(
        keys.pool_workers(POOL), keys.pool_heartbeats(POOL), keys.pool_worker_names(POOL)
    )


async def test_states_tell_what_the_pool_knows(dispatch: Dispatch, workers: Workers) -> None:
    await enqueue(dispatch, "done")
    await finish(dispatch, "done", 0)
    await enqueue(dispatch, "running")
    await workers.register()
    await workers.claim(slots=1)
    await enqueue(dispatch, "queued")
    assert await dispatch.states(POOL, ["done", "running", "queued", "nobody"]) == {
        "done": RequestState.TERMINAL,
        "running": RequestState.RUNNING,
        "queued": RequestState.QUEUED,
        "nobody": RequestState.UNKNOWN,
    }


async def test_functions_come_back_after_redis_lost_them(
    dispatch: Dispatch, dispatch_redis: Redis
) -> None:
    await dispatch_redis.function_flush()
    assert await enqueue(dispatch, "a") == Queued(position=1)


async def test_the_sweeper_ends_only_what_no_living_gateway_will(
    dispatch: Dispatch, workers: Workers, dispatch_redis: Redis
) -> None:
    await dispatch_redis.sadd(keys.known_pools(), POOL)
    await dispatch_redis.set(keys.gateway_heartbeat("alive"), "1")
    await workers.register()
    await workers.claim()
    await enqueue(dispatch, "hers", gateway_id="alive")
    await enqueue(dispatch, "nobodys", gateway_id="gone")
    await workers.die()
    late = an_envelope(request_id="late", gateway_id="gone", seconds=-60)
    again = structs.replace(late, resumed_token_ids=[7, 8, 9])
    await dispatch.enqueue(again, max_queue_length=10)
    assert await end_abandoned(dispatch_redis) == 2
    entries: Any = await dispatch_redis.xrange(keys.pool_usage(POOL))
    records = [codec.decode_usage_entry(fields[b"record"]) for _, fields in entries]
    assert {(record.request_id, record.outcome) for record in records} == {
        ("nobodys", Outcome.FAILED),
        ("late", Outcome.EXPIRED),
    }
    wasted = {record.request_id: record.wasted_tokens for record in records}
    assert wasted == {"nobodys": 0, "late": 3}, "earlier attempts' that nobody goes on from"
    assert await end_abandoned(dispatch_redis) == 0
