"""How often the queue is looked through while requests wait for adapters and slots are free."""

import pytest

from gpu_workers.protocol import keys
from tests.support.dispatch.virtual_pool import Ask, VirtualPool
from tests.support.dispatch.with_adapters import MEMORY, ONE, join, taken, with_adapter


def passes(pool: VirtualPool, name: str) -> int:
    return int(pool.redis.hget(keys.pool_request(pool.name, name), "passes") or 0)


@pytest.fixture
def cold(pool: VirtualPool) -> str:
    """What waits for an adapter on a worker that has many slots free, and two adapters here."""
    join(pool, ONE, adapter_slots=2, red=MEMORY, blue=MEMORY)
    assert pool.enqueue(with_adapter("cold", "cold")) == "queued"
    assert pool.claim(ONE, 64, adapter_slots=2) == []
    return "cold"


def test_what_may_start_at_once_does_so_beside_what_waits_for_its_adapter(
    pool: VirtualPool, cold: str
) -> None:
    before = passes(pool, cold)
    assert pool.enqueue(with_adapter("a", "red")) == "assigned"
    assert pool.enqueue(Ask(request_id="b", tenant="plain")) == "assigned"
    assert taken(pool, ONE) == ["a", "b"]
    assert passes(pool, cold) == before


def test_who_waits_counts_those_that_went_by_at_the_next_look(pool: VirtualPool, cold: str) -> None:
    before = passes(pool, cold)
    for number in range(5):
        pool.enqueue(with_adapter(f"a{number}", "red"))
    pool.claim(ONE, 64, adapter_slots=2)
    assert passes(pool, cold) == before + 5


def test_so_many_go_by_and_then_the_queue_is_looked_through(pool: VirtualPool, cold: str) -> None:
    before = passes(pool, cold)
    for number in range(8):
        assert pool.enqueue(with_adapter(f"a{number}", "red")) == "assigned"
    assert passes(pool, cold) == before
    assert pool.enqueue(with_adapter("a8", "red")) == "assigned"
    assert passes(pool, cold) == before + 9


def test_a_slot_that_becomes_free_is_looked_for_where_an_adapter_left_its_own(
    pool: VirtualPool, cold: str
) -> None:
    for name in ("a", "b"):
        pool.enqueue(with_adapter(name, "red"))
    before = passes(pool, cold)
    pool.finish("a", 1)
    assert passes(pool, cold) == before
    pool.finish("b", 1)
    assert passes(pool, cold) > before


def test_what_waits_for_an_adapter_slot_has_the_next_that_is_free(pool: VirtualPool) -> None:
    join(pool, ONE, adapter_slots=1, red=MEMORY, blue=MEMORY)
    for name in ("a", "b"):
        pool.enqueue(with_adapter(name, "red"))
    pool.enqueue(with_adapter("c", "blue"))
    assert pool.enqueue(with_adapter("d", "red")) == "assigned"
    for name in ("a", "b", "d"):
        assert "c" not in taken(pool, ONE)
        pool.finish(name, 1)
    assert taken(pool, ONE) == ["c"]


def test_an_adapter_that_has_come_is_looked_for(pool: VirtualPool, cold: str) -> None:
    pool.enqueue(with_adapter("a", "red"))
    pool.post(ONE, cold=MEMORY)
    assert taken(pool, ONE) == ["a", cold]


def test_who_goes_by_is_level_with_those_that_wait(pool: VirtualPool) -> None:
    """Who was idle has nothing of what others were charged meanwhile."""
    join(pool, ONE, red=MEMORY)
    for number in range(6):
        pool.enqueue(Ask(request_id=f"busy-{number}", tenant="busy"))
        pool.finish(f"busy-{number}", 1, 1_000, 1_000)
    pool.enqueue(with_adapter("cold", "cold"))
    pool.claim(ONE, 64, adapter_slots=2)
    assert pool.enqueue(with_adapter("late", "red", "late")) == "assigned"
    assert pool.counter("late") > pool.counter("cold") > 0
