"""Adapters that are loaded ahead of the requests that need them, and where."""

from gpu_workers.protocol import keys
from inference.lua_constants import COMING_MS, MOST_PASSES, WORKER_LEASE_MS
from tests.support.dispatch.virtual_pool import Ask, VirtualPool
from tests.support.dispatch.with_adapters import (
    DISK,
    MEMORY,
    ONE,
    SLOT,
    THREE,
    TWO,
    holders,
    join,
    join_full,
    with_adapter,
)


def test_a_cold_adapter_is_prefetched_once(pool: VirtualPool) -> None:
    join_full(pool, ONE)
    for name in "abc":
        pool.enqueue(with_adapter(name, "blue"))
    assert pool.prefetches(ONE) == ["blue"]
    assert pool.levels(ONE) == {"blue": 0}


def test_what_is_started_at_once_is_not_prefetched(pool: VirtualPool) -> None:
    join(pool, ONE)
    pool.enqueue(with_adapter("a", "blue"))
    assert pool.prefetches(ONE) == []


def test_what_is_in_memory_is_not_prefetched(pool: VirtualPool) -> None:
    join_full(pool, ONE, blue=MEMORY)
    join_full(pool, TWO)
    pool.enqueue(with_adapter("a", "blue"))
    assert pool.prefetches(ONE) + pool.prefetches(TWO) == []


def test_it_is_the_worker_with_the_adapter_on_disk_that_prefetches_it(pool: VirtualPool) -> None:
    for worker_id in (ONE, THREE):
        join_full(pool, worker_id)
    join_full(pool, TWO, blue=DISK)
    pool.enqueue(with_adapter("a", "blue"))
    assert pool.prefetches(TWO) == ["blue"]
    assert pool.levels(TWO) == {"blue": DISK}


def test_a_prefetch_that_failed_is_asked_for_again(pool: VirtualPool) -> None:
    join_full(pool, ONE)
    pool.enqueue(with_adapter("a", "blue"))
    pool.post(ONE, blue=None)
    pool.enqueue(with_adapter("b", "blue"))
    assert pool.prefetches(ONE) == ["blue", "blue"]


def test_a_prefetch_that_nobody_has_told_of_is_asked_for_again(pool: VirtualPool) -> None:
    join_full(pool, ONE)
    pool.enqueue(with_adapter("a", "blue"))
    pool.now_ms += COMING_MS + 1
    pool.beat(ONE)
    pool.enqueue(with_adapter("b", "blue"))
    assert pool.prefetches(ONE) == ["blue", "blue"]


def test_a_worker_prefetches_no_more_at_a_time_than_it_has_slots(pool: VirtualPool) -> None:
    """Who asks for a thousand adapters does not drive others' out of its memory."""
    join_full(pool, ONE)
    for name in "abcd":
        pool.enqueue(with_adapter(name, name))
    assert pool.prefetches(ONE) == ["a", "b"]
    pool.post(ONE, a=MEMORY)
    pool.enqueue(with_adapter("e", "e"))
    assert pool.prefetches(ONE) == ["e"]


def test_who_waits_behind_many_prefetches_only_when_it_is_passed_over(pool: VirtualPool) -> None:
    """When it was loaded long before, another would have taken its place in memory."""
    join(pool, ONE, 2, adapter_slots=1)
    pool.enqueue(with_adapter("a", "blue", "acme"))
    pool.enqueue(Ask(request_id="b", tenant="acme"))
    waiting = [f"base-{number:02d}" for number in range(MOST_PASSES + 4)]
    for name in waiting:
        pool.enqueue(Ask(request_id=name, tenant="acme"))
    pool.enqueue(with_adapter("late", "red", "acme"))
    assert pool.prefetches(ONE) == []
    for name in ["b", *waiting]:
        pool.finish(name, 1)
    assert pool.prefetches(ONE) == ["red"]


def test_a_hot_adapter_spreads_as_its_queue_grows(pool: VirtualPool) -> None:
    join_full(pool, ONE, blue=SLOT)
    for worker_id in (TWO, THREE):
        join_full(pool, worker_id)
    for number in range(MOST_PASSES):
        assert pool.prefetches(TWO) + pool.prefetches(THREE) == []
        pool.enqueue(with_adapter(f"a{number:02d}", "blue"))
    assert pool.redis.zcard(keys.pool_adapter_workers(pool.name, "blue")) == 2
    for number in range(MOST_PASSES):
        pool.enqueue(with_adapter(f"b{number:02d}", "blue"))
    assert holders(pool, "blue") == {ONE: SLOT, TWO: 0, THREE: 0}


def test_a_request_that_is_tried_again_has_its_adapter_prefetched(pool: VirtualPool) -> None:
    """The worker that had it is lost, and with it the adapter."""
    join(pool, ONE, 1)
    pool.enqueue(with_adapter("a", "blue"))
    join_full(pool, TWO)
    pool.now_ms += WORKER_LEASE_MS
    pool.beat(TWO)
    pool.requeue("a", 1)
    assert pool.prefetches(TWO) == ["blue"]
