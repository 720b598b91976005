"""Adapters that are loaded ahead of the requests that need them, and where."""

from gpu_workers.protocol import functions, keys
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
    taken,
    with_adapter,
)


def test_a_cold_adapter_is_prefetched_once(pool: VirtualPool) -> None:
    join_full(pool, ONE)
    for name in "abc":
        pool.enqueue(with_adapter(name, "blue"))
    assert pool.prefetches(ONE) == ["blue"]
    assert pool.levels(ONE) == {"blue": 0}


def test_what_is_started_at_once_is_not_prefetched(pool: VirtualPool) -> None:
    join(pool, ONE, blue=MEMORY)
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


def test_a_request_whose_adapter_could_not_be_prefetched_is_handed_over(pool: VirtualPool) -> None:
    """The worker tries again, and says why not."""
    join(pool, ONE)
    pool.enqueue(with_adapter("a", "blue"))
    assert pool.prefetches(ONE) == ["blue"]
    pool.post(ONE, blue=None)
    assert pool.messages(ONE) == [("assign", "a", 1)]


def test_it_is_handed_over_once_there_is_a_slot(pool: VirtualPool) -> None:
    """Nor does the worker try without end until then."""
    join(pool, ONE, adapter_slots=1, red=MEMORY)
    pool.enqueue(with_adapter("a", "red"))
    pool.enqueue(with_adapter("b", "blue"))
    assert pool.prefetches(ONE) == ["blue"]
    pool.post(ONE, blue=DISK)
    for _ in range(3):
        pool.claim(ONE, 64, adapter_slots=1)
    assert pool.messages(ONE) == []
    pool.finish("a", 1)
    assert pool.messages(ONE) == [("assign", "b", 1)]


def test_what_could_not_be_prefetched_is_asked_for_again_after_a_while(pool: VirtualPool) -> None:
    join_full(pool, ONE)
    pool.enqueue(with_adapter("a", "blue"))
    pool.post(ONE, blue=None)
    pool.enqueue(with_adapter("b", "blue"))
    assert pool.prefetches(ONE) == ["blue"]
    pool.now_ms += COMING_MS + 1
    pool.beat(ONE)
    pool.enqueue(with_adapter("c", "blue"))
    assert pool.prefetches(ONE) == ["blue"]


def test_a_prefetch_that_nobody_has_told_of_is_asked_for_again(pool: VirtualPool) -> None:
    join_full(pool, ONE)
    pool.enqueue(with_adapter("a", "blue"))
    pool.now_ms += COMING_MS + 1
    pool.beat(ONE)
    pool.enqueue(with_adapter("b", "blue"))
    assert pool.prefetches(ONE) == ["blue", "blue"]


def test_it_is_also_where_its_request_is_passed_over(pool: VirtualPool) -> None:
    """By a worker that lives; the one that was told has died."""
    join(pool, ONE)
    pool.enqueue(with_adapter("a", "blue"))
    assert pool.prefetches(ONE) == ["blue"]
    join(pool, TWO)
    pool.now_ms += COMING_MS + 1
    pool.note_gateway("gateway")
    pool.claim(TWO, 64, adapter_slots=2)
    assert (pool.prefetches(ONE), pool.prefetches(TWO)) == ([], ["blue"])


def test_a_worker_that_tells_of_no_adapter_is_given_requests_all_the_same(
    pool: VirtualPool,
) -> None:
    """Once a prefetch has not been answered for so long, until something is."""
    join(pool, ONE)
    pool.enqueue(with_adapter("a", "blue"))
    pool.now_ms += COMING_MS + 1
    pool.note_gateway("gateway")
    assert [each.request_id for each in pool.claim(ONE, 64, adapter_slots=2)] == ["a"]
    assert pool.enqueue(with_adapter("b", "red")) == "assigned"
    pool.post(ONE, red=MEMORY)
    assert pool.enqueue(with_adapter("c", "green")) == "queued"


def test_where_the_worker_that_has_an_adapter_is_full_it_comes_to_one_that_is_not(
    pool: VirtualPool,
) -> None:
    join_full(pool, ONE, blue=MEMORY)
    join(pool, TWO)
    pool.enqueue(with_adapter("a", "blue"))
    assert pool.prefetches(TWO) == ["blue"]
    pool.post(TWO, blue=MEMORY)
    assert taken(pool, TWO) == ["a"]


def test_it_comes_to_one_that_has_become_free(pool: VirtualPool) -> None:
    join_full(pool, ONE, blue=MEMORY)
    plain = join_full(pool, TWO)
    pool.enqueue(with_adapter("a", "blue"))
    assert pool.prefetches(TWO) == []
    pool.finish(plain, 1)
    assert pool.prefetches(TWO) == ["blue"]


def test_it_comes_to_as_many_as_can_start_all_that_wait(pool: VirtualPool) -> None:
    for worker_id in (ONE, TWO, THREE):
        join(pool, worker_id, 1)
    for name in "ab":
        pool.enqueue(with_adapter(name, "blue"))
    told = [pool.prefetches(worker_id) for worker_id in (ONE, TWO, THREE)]
    assert sorted(told) == [[], ["blue"], ["blue"]]


def test_it_comes_to_no_more_than_can_start_all_that_wait(pool: VirtualPool) -> None:
    for worker_id in (ONE, TWO):
        join(pool, worker_id, 3)
    for name in "abc":
        pool.enqueue(with_adapter(name, "blue"))
    assert sorted([pool.prefetches(ONE), pool.prefetches(TWO)]) == [[], ["blue"]]


def test_it_comes_to_none_whose_adapter_slots_are_taken(pool: VirtualPool) -> None:
    join_full(pool, ONE, blue=MEMORY)
    join(pool, TWO, adapter_slots=1, red=MEMORY)
    pool.enqueue(with_adapter("runs", "red"))
    assert taken(pool, TWO) == ["runs"]
    pool.enqueue(with_adapter("a", "blue"))
    assert pool.prefetches(TWO) == []


def test_who_waits_long_for_a_worker_that_has_the_adapter_gets_it_elsewhere(
    pool: VirtualPool,
) -> None:
    """That worker has slots and no room in its cache."""
    pool.register(ONE)
    pool.post(ONE, blue=MEMORY)
    pool.claim(ONE, 64, kv_tokens=1000, adapter_slots=2)
    pool.enqueue(Ask(request_id="large", tenant="plain", prompt=900, output=50))
    assert taken(pool, ONE) == ["large"]
    join(pool, TWO)
    pool.enqueue(with_adapter("a", "blue"))
    for _ in range(MOST_PASSES + 1):
        assert pool.prefetches(TWO) == []
        pool.claim(TWO, 64, adapter_slots=2)
    assert pool.prefetches(TWO) == ["blue"]
    pool.post(TWO, blue=MEMORY)
    assert taken(pool, TWO) == ["a"]


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
    join(pool, ONE, 2, adapter_slots=1, blue=MEMORY)
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
    pool.post(TWO, blue=MEMORY)
    pool.finish(f"plain-{TWO}", 1)
    assert taken(pool, TWO) == ["a00"]


def test_a_request_that_is_tried_again_has_its_adapter_prefetched(pool: VirtualPool) -> None:
    """The worker that had it is lost, and with it the adapter."""
    join(pool, ONE, 1, blue=MEMORY)
    pool.enqueue(with_adapter("a", "blue"))
    join_full(pool, TWO)
    pool.now_ms += WORKER_LEASE_MS
    pool.beat(TWO)
    pool.requeue("a", 1)
    assert pool.prefetches(TWO) == ["blue"]


def test_what_nobody_asks_for_is_prefetched_once_and_not_where_it_is(pool: VirtualPool) -> None:
    pool.call(functions.PREFETCH, "blue", pool.now_ms)
    join(pool, ONE)
    join(pool, TWO, green=MEMORY)
    for name in ("blue", "blue", "green"):
        pool.call(functions.PREFETCH, name, pool.now_ms)
    assert pool.prefetches(ONE) + pool.prefetches(TWO) == ["blue"]


def test_what_a_worker_could_not_get_a_moment_ago_is_given_to_it_at_once(pool: VirtualPool) -> None:
    """It is not prefetched again meanwhile, so nobody would tell when to start the next."""
    join(pool, ONE)
    pool.enqueue(with_adapter("a", "blue"))
    pool.post(ONE, blue=None)
    assert taken(pool, ONE) == ["a"]
    assert pool.enqueue(with_adapter("b", "blue")) == "assigned"
    pool.finish("a", 1)
    pool.finish("b", 1)
    assert pool.enqueue(with_adapter("c", "blue")) == "assigned"
