"""A call looks at as much in a pool of many workers as in a small one, and forgets one whole."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from redis import Redis

from gpu_workers.protocol import functions, keys
from gpu_workers.protocol.adapters import AdapterLevel
from inference.lua_constants import MOST_PASSES, WORKER_LEASE_MS
from tests.support.dispatch.virtual_pool import Ask, VirtualPool

FEW, MANY, SLOTS, STEP_US = 4, 60, 8, 10_000
# Of those with most credit, of the nearest and of all that have an adapter.
LOOKED_AT = 4 + 8 + 16


@pytest.fixture
def pool(dispatch_redis_url: str) -> Iterator[VirtualPool]:
    with Redis.from_url(dispatch_redis_url, socket_timeout=None) as redis:
        redis.flushall()
        yield VirtualPool(redis)


def fill(pool: VirtualPool, workers: int, **levels: AdapterLevel) -> list[str]:
    """Full workers that report their steps and have these adapters, and requests that wait."""
    names = [f"worker-{number}#1" for number in range(workers)]
    for number in range(workers * SLOTS + 20):
        pool.enqueue(Ask(request_id=f"r{number:05d}", tenant=f"t{number % 7}", output=512))
    for name in names:
        pool.register(name)
        pool.post(name, **levels)
        started = pool.claim(name, SLOTS, kv_tokens=10_000, adapter_slots=2)
        assert len(started) == SLOTS
        pool.settle(name, [(each.request_id, 1, 50, 10) for each in started], step_us=STEP_US)
    return names


def commands_of(pool: VirtualPool, function: str, *arguments: Any) -> int:
    """How many commands Redis runs for one call."""

    def count() -> int:
        found: dict[str, Any] = pool.redis.info("commandstats")
        return sum(int(each["calls"]) for each in found.values())

    before = count()
    pool.call(function, *arguments)
    return count() - before


def commands_of_each_call(pool: VirtualPool, workers: int) -> dict[str, int]:
    pool.redis.flushall()
    names = fill(pool, workers)
    one = names[0]
    [held, other, *_] = sorted(
        member.decode()
        for member in cast(
            set[bytes], pool.redis.smembers(keys.pool_worker_requests(pool.name, one))
        )
    )
    pool.claim(one, SLOTS, kv_tokens=10_000)
    calls: dict[str, tuple[Any, ...]] = {
        "enqueue": pool.enqueue_call(Ask(request_id="new", tenant="t1")),
        "progress": pool.settle_call(one, [(held, 1, 60, 20)], STEP_US),
        "finish": pool.finish_call(held, 1, 60, 20),
        "requeue": (functions.REQUEUE, other, 1, "preempted", b"", 0, pool.now_ms),
        "claim": (
            functions.CLAIM, one, b"info", SLOTS + 1, 10_000, 0, 1, pool.now_ms,
        ),
        "forecast": (functions.FORECAST, "interactive", "t1", pool.now_ms),
        "reap": (functions.REAP, WORKER_LEASE_MS, 0, 500, "", pool.now_ms),
    }  # fmt: skip
    return {name: commands_of(pool, *call) for name, call in calls.items()}


def test_no_call_asks_more_of_redis_where_there_are_many_workers(pool: VirtualPool) -> None:
    assert commands_of_each_call(pool, MANY) == commands_of_each_call(pool, FEW)


def test_what_every_call_reads_does_not_grow_with_the_workers(pool: VirtualPool) -> None:
    def numbers_read(workers: int) -> int:
        pool.redis.flushall()
        fill(pool, workers, a=AdapterLevel.SLOT, b=AdapterLevel.DISK)
        return pool.redis.hlen(keys.pool_scheduler(pool.name))

    assert numbers_read(MANY) == numbers_read(FEW)


def test_a_request_reads_of_other_workers_what_they_are_to_its_adapter(pool: VirtualPool) -> None:
    """Not all that runs, waits and comes there: that is a multiple of each one's slots. Of numbers
    that each has, it reads a handful of the workers that it looks at."""

    def hashes_read(adapter: str) -> int:
        pool.redis.flushall()
        for number in range(MANY):
            name = f"worker-{number}#1"
            pool.register(name)
            pool.post(name, blue=AdapterLevel.DISK)
            pool.claim(name, SLOTS, adapter_slots=2)
        pool.redis.config_resetstat()
        pool.enqueue(Ask(request_id="new", tenant="t", adapter=adapter))
        [told] = [each for number in range(MANY) if (each := pool.messages(f"worker-{number}#1"))]
        assert told[0][0] == ("prefetch" if adapter else "assign")
        found: dict[str, Any] = pool.redis.info("commandstats")
        return int(found["cmdstat_hgetall"]["calls"])

    assert hashes_read("blue") - hashes_read("") <= LOOKED_AT


def test_of_many_that_wait_for_an_adapter_few_look_for_a_worker(pool: VirtualPool) -> None:
    fill(pool, MANY, blue=AdapterLevel.DISK)
    asks = [
        Ask(request_id=f"blue-{number:02d}", tenant="t", adapter="blue")
        for number in range(1, 4 * MOST_PASSES + 1)
    ]
    calls = [commands_of(pool, *pool.enqueue_call(ask)) for ask in asks]
    plain = commands_of(pool, *pool.enqueue_call(Ask(request_id="plain", tenant="t")))
    looked = [number for number, commands in enumerate(calls, 1) if commands > 2 * plain]
    assert [number for number in looked if number >= MOST_PASSES] == [
        MOST_PASSES * each for each in range(1, 5)
    ]


def commands_of_a_claim(pool: VirtualPool, worker: str) -> int:
    claim = (functions.CLAIM, worker, b"info", SLOTS, 10_000, 0, 1, pool.now_ms)
    return commands_of(pool, *claim)


def test_the_pace_of_a_worker_is_compared_with_few_others(pool: VirtualPool) -> None:
    """All of them a little quicker than the last, and all with the same load."""
    names = fill(pool, MANY)
    for number, name in enumerate(names):
        pool.settle(name, [], step_us=STEP_US + number)
    slow = names[-1]
    pool.settle(slow, [], step_us=400 * STEP_US)
    assert commands_of_a_claim(pool, slow) < MANY / 2
    assert pool.redis.zscore(keys.pool_slots(pool.name), slow) == 1


def test_the_pace_of_a_worker_is_compared_with_few_others_where_each_bears_another_load(
    pool: VirtualPool,
) -> None:
    names = [f"worker-{number:02d}#1" for number in range(MANY)]
    for number, name in enumerate(names):
        pool.register(name)
        for each in range(MANY + number):
            pool.enqueue(Ask(request_id=f"{name}-{each}", tenant="t"))
        assert len(pool.claim(name, MANY + number)) == MANY + number
        pool.settle(name, [], step_us=STEP_US)
        pool.claim(name, MANY + number)
    assert commands_of_a_claim(pool, names[0]) < MANY / 2


def test_a_dead_worker_is_met_once_where_paces_are_compared(pool: VirtualPool) -> None:
    *quick, slow = fill(pool, MANY)
    pool.now_ms += WORKER_LEASE_MS
    pool.settle(slow, [], step_us=400 * STEP_US)
    pool.claim(slow, SLOTS)
    assert commands_of_a_claim(pool, slow) < MANY / 2
    pool.settle(quick[0], [], step_us=STEP_US)
    pool.claim(slow, SLOTS)
    assert pool.redis.zscore(keys.pool_slots(pool.name), slow) == 1


def test_the_pace_of_a_dead_worker_is_no_measure(pool: VirtualPool) -> None:
    quick, slow = fill(pool, 2)
    pool.now_ms += WORKER_LEASE_MS
    pool.settle(slow, [], step_us=400 * STEP_US)
    pool.claim(slow, SLOTS)
    assert pool.redis.zscore(keys.pool_slots(pool.name), slow) == SLOTS
    pool.settle(quick, [], step_us=STEP_US)
    pool.claim(slow, SLOTS)
    assert pool.redis.zscore(keys.pool_slots(pool.name), slow) == 1


def test_a_request_is_left_to_a_worker_that_has_its_adapter_wherever_that_is(
    pool: VirtualPool,
) -> None:
    """Which ones hold an adapter is known without a look at the others."""
    pool.redis.hset(keys.pool_scheduler(pool.name), "headroom", 0)
    names = [f"worker-{number}#1" for number in range(MANY)]
    for name in names:
        pool.register(name)
        pool.post(name, **dict.fromkeys("ab" if name == names[-1] else "b", AdapterLevel.SLOT))
        pool.claim(name, 1, adapter_slots=2)
    holder = names[-1]
    for number in range(MANY):
        pool.enqueue(Ask(request_id=f"r{number}", tenant="t", adapter="b"))
    pool.enqueue(Ask(request_id="other", tenant="t", adapter="b"))
    waits = Ask(request_id="with-a", tenant="t2", adapter="a")
    pool.enqueue(waits)
    [first] = pool.inbox(names[0])
    pool.finish(first.request_id, first.attempt)
    assert [each.request_id for each in pool.inbox(names[0])] == ["other"]
    assert pool.waiting() == 1
    [last] = pool.inbox(holder)
    pool.finish(last.request_id, last.attempt)
    assert [each.request_id for each in pool.inbox(holder)] == ["with-a"]


def test_of_a_worker_that_has_left_nothing_is_kept(pool: VirtualPool) -> None:
    [name] = fill(pool, 1, a=AdapterLevel.SLOT, b=AdapterLevel.DISK)
    pool.enqueue(Ask(request_id="new", tenant="t1", adapter="c"))
    running = keys.pool_worker_requests(pool.name, name)
    while held := cast(set[bytes], pool.redis.smembers(running)):
        for member in held:
            pool.finish(member.decode(), 1)
        pool.inbox(name)
    pool.call(functions.LEAVE, name, pool.now_ms)
    left = [key.decode() for key in pool.redis.scan_iter() if name in key.decode()]
    assert left == []
    for adapter in "abc":
        assert not pool.redis.exists(keys.pool_adapter_workers(pool.name, adapter))
    assert not pool.redis.exists(keys.pool_paces(pool.name))
    assert pool.scheduler()["kv"] == 0
