"""A worker that can get no adapter, as its disk is full or the store away, gives requests back."""

from inference.lua_constants import CLOSED_MS, MOST_TRIES
from tests.support.dispatch.virtual_pool import Ask, VirtualPool
from tests.support.dispatch.with_adapters import (
    MEMORY,
    ONE,
    THREE,
    TWO,
    join,
    taken,
    with_adapter,
)

REASON = "adapters_unavailable"


def start_cold(
    pool: VirtualPool, worker_id: str, name: str, adapter: str, attempt: int = 1
) -> None:
    """A worker could not get an adapter ahead of its request, and is given that."""
    assert ("prefetch", adapter, 0) in pool.messages(worker_id)
    pool.post(worker_id, **{adapter: None})
    assert pool.messages(worker_id) == [("assign", name, attempt)]


def test_another_worker_gets_its_adapter_and_runs_it(pool: VirtualPool) -> None:
    join(pool, ONE)
    pool.enqueue(with_adapter("a", "blue"))
    join(pool, TWO)
    start_cold(pool, ONE, "a", "blue")
    assert pool.requeue("a", 1, REASON) == [b"requeued", 1]
    assert pool.messages(ONE) == []
    assert pool.messages(TWO) == [("prefetch", "blue", 0)]
    pool.post(TWO, blue=MEMORY)
    assert pool.messages(TWO) == [("assign", "a", 2)]
    pool.finish("a", 2)


def test_meanwhile_it_gets_what_needs_no_adapter_that_it_has_not_in_memory(
    pool: VirtualPool,
) -> None:
    join(pool, ONE, 64, red=MEMORY)
    pool.enqueue(with_adapter("a", "blue"))
    join(pool, TWO, 1)
    start_cold(pool, ONE, "a", "blue")
    pool.requeue("a", 1, REASON)
    pool.messages(TWO)
    pool.enqueue(with_adapter("b", "red"))
    pool.enqueue(with_adapter("c", "green"))
    pool.enqueue(Ask(request_id="d", tenant="plain"))
    assert pool.messages(ONE) == [("assign", "b", 1), ("assign", "d", 1)]
    assert pool.prefetches(TWO) == ["green"]


def test_it_is_not_given_what_it_said_it_could_not_get(pool: VirtualPool) -> None:
    join(pool, ONE)
    pool.enqueue(with_adapter("a", "blue"))
    join(pool, TWO, 1)
    start_cold(pool, ONE, "a", "blue")
    pool.requeue("a", 1, REASON)
    pool.enqueue(with_adapter("b", "blue", tenant="other"))
    pool.claim(ONE, 64, adapter_slots=2)
    assert pool.messages(ONE) == []
    pool.post(TWO, blue=MEMORY)
    assert taken(pool, TWO) == ["a"]


def test_after_a_while_it_is_tried_again_with_others(pool: VirtualPool) -> None:
    join(pool, ONE)
    pool.enqueue(with_adapter("a", "blue"))
    join(pool, TWO, 1)
    start_cold(pool, ONE, "a", "blue")
    pool.requeue("a", 1, REASON)
    pool.now_ms += CLOSED_MS + 1
    pool.note_gateway("gateway")
    pool.beat(ONE)
    pool.enqueue(with_adapter("b", "green"))
    assert pool.prefetches(ONE) == ["green"]
    pool.post(ONE, green=MEMORY)
    assert taken(pool, ONE) == ["b"]


def test_where_no_other_worker_has_adapters_it_ends_at_once(pool: VirtualPool) -> None:
    """Its client is told to ask again, and does not wait for nothing."""
    join(pool, ONE)
    pool.enqueue(with_adapter("a", "blue"))
    pool.register(TWO)
    pool.claim(TWO, 8)
    start_cold(pool, ONE, "a", "blue")
    assert pool.requeue("a", 1, REASON) == [b"exhausted", 1]
    assert pool.finish("a", 1)


def test_it_ends_when_so_many_workers_could_not_get_its_adapter(pool: VirtualPool) -> None:
    workers = [ONE, TWO, THREE, "four#1"]
    for worker_id in workers:
        join(pool, worker_id)
    pool.enqueue(with_adapter("a", "blue"))
    for tries in range(1, MOST_TRIES + 1):
        worker_id, told = next(
            (each, told) for each in workers if (told := pool.messages(each)) != []
        )
        assert told == [("prefetch", "blue", 0)]
        pool.post(worker_id, blue=None)
        assert pool.messages(worker_id) == [("assign", "a", tries)]
        workers.remove(worker_id)
        answer = pool.requeue("a", tries, REASON)
        assert answer[0] == (b"exhausted" if tries == MOST_TRIES else b"requeued")


def test_what_its_client_has_cancelled_is_not_tried_again(pool: VirtualPool) -> None:
    join(pool, ONE)
    pool.enqueue(with_adapter("a", "blue"))
    join(pool, TWO)
    start_cold(pool, ONE, "a", "blue")
    pool.cancel("a")
    assert pool.requeue("a", 1, REASON) == [b"stale"]
