"""What is found of requests whose worker or gateway is dead, and what the sweeper ends."""

import time
from typing import Any

from msgspec import structs
from redis.asyncio import Redis

from gpu_workers.protocol import codec, keys
from gpu_workers.protocol.messages import Outcome
from gpu_workers.protocol.usage import UsageEntry
from inference.dispatch.abandoned import end_abandoned
from inference.dispatch.queue import Dispatch, RequestState
from inference.lua_constants import GATEWAY_LEASE_MS
from tests.support.dispatch.bare_calls import Workers, enqueue, finish
from tests.support.gateways.cast import POOL, an_envelope

LONG_AGO = 3_600_000
HERS = "gateway-1"


async def test_reap_names_what_a_dead_worker_held_and_changes_nothing(
    dispatch: Dispatch, workers: Workers
) -> None:
    await workers.register()
    await workers.claim()
    await enqueue(dispatch, "a")
    assert await dispatch.reap(POOL, gateway_id=HERS) == []
    await workers.die()
    for _ in range(2):
        [stranded] = await dispatch.reap(POOL, gateway_id=HERS)
        assert (stranded.request_id, stranded.attempt) == ("a", 1)
        assert stranded.state is RequestState.RUNNING
        assert stranded.gateway_id == "gateway-1"
        assert codec.decode_envelope(stranded.envelope).request_id == "a"
    assert await finish(dispatch, "a", 1, Outcome.FAILED)
    assert await dispatch.reap(POOL, gateway_id=HERS) == []


async def test_reap_names_only_the_asking_gateways_requests(
    dispatch: Dispatch, workers: Workers
) -> None:
    await workers.register()
    await workers.claim()
    await enqueue(dispatch, "a", gateway_id="gateway-1")
    await enqueue(dispatch, "b", gateway_id="gateway-2")
    await enqueue(dispatch, "c", gateway_id="gateway-2")
    await workers.die()
    found = await dispatch.reap(POOL, gateway_id="gateway-2")
    assert {stranded.request_id for stranded in found} == {"b", "c"}
    assert len(await dispatch.reap(POOL, gateway_id="gateway-2", limit=1)) == 1


async def test_reap_names_what_waited_beyond_deadline_and_grace(dispatch: Dispatch) -> None:
    await enqueue(dispatch, "late", seconds=-5)
    await enqueue(dispatch, "a")
    assert await dispatch.reap(POOL, gateway_id=HERS, grace_ms=60_000) == []
    [stranded] = await dispatch.reap(POOL, gateway_id=HERS, grace_ms=1_000)
    assert (stranded.request_id, stranded.attempt) == ("late", 0)
    assert stranded.state is RequestState.QUEUED


async def test_reap_forgets_a_worker_that_is_long_dead(
    dispatch: Dispatch, workers: Workers, dispatch_redis: Redis
) -> None:
    await workers.register()
    await workers.die(ago_ms=LONG_AGO)
    await dispatch.reap(POOL, gateway_id=HERS)
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


async def lose(redis: Redis, gateway_id: str) -> None:
    """A gateway without a heartbeat, which was missed some time ago."""
    missed_ms = time.time_ns() // 1_000_000 - 10_000
    await redis.zadd(keys.pool_gateways(POOL), {gateway_id: -missed_ms})


async def records(redis: Redis) -> list[UsageEntry]:
    entries: Any = await redis.xrange(keys.pool_usage(POOL))
    return [codec.decode_usage_entry(fields[b"record"]) for _, fields in entries]


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
    await enqueue(dispatch, "hers-too", gateway_id="alive", seconds=-60)
    waiting = an_envelope(request_id="waiting", gateway_id="gone", seconds=600)
    again = structs.replace(waiting, resumed_token_ids=[7, 8, 9])
    await dispatch.enqueue(again, max_queue_length=10)
    assert await end_abandoned(dispatch_redis) == 0, "nobody knows yet that it is gone"
    for gateway_id in ("alive", "gone"):
        await lose(dispatch_redis, gateway_id)
    assert await end_abandoned(dispatch_redis) == 2
    ended = {each.request_id: each for each in await records(dispatch_redis)}
    assert {name: (each.outcome, each.error_code) for name, each in ended.items()} == {
        "nobodys": (Outcome.FAILED, "worker_lost"),
        "waiting": (Outcome.EXPIRED, "gateway_lost"),
    }
    wasted = {name: each.wasted_tokens for name, each in ended.items()}
    assert wasted == {"nobodys": 0, "waiting": 3}, "earlier attempts' that nobody goes on from"
    assert await end_abandoned(dispatch_redis) == 0


async def test_a_heartbeat_from_before_the_clock_was_set_back_does_not_last_for_hours(
    dispatch: Dispatch, dispatch_redis: Redis
) -> None:
    await dispatch_redis.sadd(keys.known_pools(), POOL)
    await enqueue(dispatch, "a", gateway_id="gone")
    heartbeat = keys.gateway_heartbeat("gone")
    await dispatch_redis.set(heartbeat, "1", ex=6 * 3_600)
    assert await end_abandoned(dispatch_redis) == 0
    assert 0 < await dispatch_redis.pttl(heartbeat) <= GATEWAY_LEASE_MS


async def test_the_overdue_of_one_gateway_hide_nobody_elses(
    dispatch: Dispatch, dispatch_redis: Redis
) -> None:
    await dispatch_redis.sadd(keys.known_pools(), POOL)
    for number in range(4):
        await enqueue(dispatch, f"theirs-{number}", gateway_id="gateway-1", seconds=-30)
        await enqueue(dispatch, f"nobodys-{number}", gateway_id="gone", seconds=-20)
    await enqueue(dispatch, "hers", gateway_id="gateway-2", seconds=-5)
    found = await dispatch.reap(POOL, limit=3, gateway_id="gateway-2")
    assert [stranded.request_id for stranded in found] == ["hers"]
    assert len(await dispatch.reap(POOL, limit=3, gateway_id="gateway-1")) == 3
    await lose(dispatch_redis, "gone")
    assert await end_abandoned(dispatch_redis, page=3) == 4


async def test_what_cannot_be_ended_keeps_the_sweeper_from_nothing_else(
    dispatch: Dispatch, dispatch_redis: Redis
) -> None:
    await dispatch_redis.sadd(keys.known_pools(), POOL)
    for name in ("a", "b", "c"):
        await enqueue(dispatch, name, gateway_id="gone")
    await dispatch_redis.hset(keys.pool_request(POOL, "a"), "envelope", b"of another version")
    await dispatch_redis.hdel(keys.pool_request(POOL, "b"), "path")
    await lose(dispatch_redis, "gone")
    assert await end_abandoned(dispatch_redis) == 1
    assert [each.request_id for each in await records(dispatch_redis)] == ["c"]
