"""What is found of requests whose worker or gateway is dead, and what the sweeper ends."""

from typing import Any

from msgspec import structs
from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Outcome
from inference.dispatch.queue import Dispatch, RequestState, end_abandoned
from tests.support.dispatch.bare_calls import Workers, enqueue, finish
from tests.support.gateways.cast import POOL, an_envelope

LONG_AGO = 3_600_000


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


async def test_the_sweeper_ends_only_what_no_living_gateway_will(
    dispatch: Dispatch, workers: Workers, dispatch_redis: Redis
) -> None:
    await dispatch_redis.sadd(keys.known_pools(), POOL)
    await dispatch_redis.set(keys.gateway_heartbeat("alive"), "1", ex=60)
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
