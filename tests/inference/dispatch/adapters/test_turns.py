"""When a cold adapter gets its turn, and whose slot it has."""

import pytest

from inference.lua_constants import MOST_PASSES
from tests.support.dispatch.virtual_pool import Ask, VirtualPool
from tests.support.dispatch.with_adapters import (
    MEMORY,
    ONE,
    TWO,
    draining,
    join,
    taken,
    with_adapter,
)


def wait_patiently(pool: VirtualPool, worker_id: str, adapter_slots: int = 2) -> None:
    """As many claims as a request lets go by, and the one in which it does no more."""
    for _ in range(MOST_PASSES + 1):
        assert pool.claim(worker_id, 64, adapter_slots=adapter_slots) == []


def blue_drains_for_green(pool: VirtualPool) -> None:
    """On ONE, where blue and red run; three tenants ask for all three."""
    join(pool, ONE, blue=MEMORY, red=MEMORY, green=MEMORY)
    for name in ("blue", "red"):
        pool.enqueue(with_adapter(name, name))
    pool.enqueue(Ask(request_id="green", tenant="green", adapter="green", seconds=3))
    assert taken(pool, ONE) == ["blue", "red"]
    wait_patiently(pool, ONE)
    assert draining(pool, ONE) == {"blue": "green"}


def test_a_slot_is_not_held_for_an_adapter_that_is_still_loading(pool: VirtualPool) -> None:
    """It is prefetched, and starts as soon as it has come; what is in memory goes first."""
    join(pool, ONE, adapter_slots=1, blue=MEMORY, red=MEMORY)
    pool.enqueue(with_adapter("a", "blue"))
    pool.enqueue(with_adapter("b", "cold"))
    pool.now_ms += 1
    pool.enqueue(with_adapter("c", "red"))
    pool.enqueue(with_adapter("d", "red"))
    assert taken(pool, ONE) == ["a"]
    pool.finish("a", 1)
    assert taken(pool, ONE) == ["c", "d"]
    for name in "cd":
        pool.finish(name, 1)
    assert taken(pool, ONE) == []
    pool.post(ONE, cold=MEMORY)
    assert taken(pool, ONE) == ["b"]


def test_a_new_request_holds_no_slot_either_while_its_adapter_loads(pool: VirtualPool) -> None:
    """Or who asks for a thousand adapters would have all slots wait for loads."""
    join(pool, ONE, adapter_slots=2, red=MEMORY)
    for name in ("cold", "colder", "coldest"):
        assert pool.enqueue(with_adapter(name, name)) == "queued"
    for _ in range(2 * MOST_PASSES):
        assert pool.claim(ONE, 64, adapter_slots=2) == []
    assert pool.enqueue(with_adapter("a", "red")) == "assigned"
    pool.post(ONE, colder=MEMORY)
    assert taken(pool, ONE) == ["a", "colder"]


def test_no_slot_is_made_for_an_adapter_that_is_still_loading(pool: VirtualPool) -> None:
    join(pool, ONE, blue=MEMORY, red=MEMORY)
    for name in ("blue", "red", "cold"):
        pool.enqueue(with_adapter(name, name))
    wait_patiently(pool, ONE)
    assert draining(pool, ONE) == {}
    pool.post(ONE, cold=MEMORY)
    assert draining(pool, ONE) == {"blue": "cold"}


def test_who_waits_for_a_slot_has_one_made_though_nobody_else_is_served(pool: VirtualPool) -> None:
    """So the wait for a drain is over after MOST_PASSES claims, however little is asked."""
    blue_drains_for_green(pool)
    pool.enqueue(with_adapter("more", "blue"))
    assert taken(pool, ONE) == []
    pool.finish("blue", 1, 100, 100)
    assert taken(pool, ONE) == ["green"]
    assert draining(pool, ONE) == {}


def test_a_tenant_that_has_a_slot_gives_up_its_own_for_its_next_adapter(pool: VirtualPool) -> None:
    """Many adapters give nobody more slots."""
    join(pool, ONE, blue=MEMORY, red=MEMORY, green=MEMORY)
    pool.enqueue(with_adapter("a", "red", "globex"))
    pool.now_ms += 1
    pool.enqueue(with_adapter("b", "blue", "acme"))
    pool.enqueue(with_adapter("c", "green", "acme"))
    wait_patiently(pool, ONE)
    assert draining(pool, ONE) == {"blue": "acme"}


def test_who_has_most_slots_gives_one_up(pool: VirtualPool) -> None:
    """The one with the fewest requests, which is free the soonest."""
    join(pool, ONE, adapter_slots=3, blue=MEMORY, red=MEMORY, green=MEMORY, black=MEMORY)
    pool.enqueue(with_adapter("a", "red", "globex"))
    pool.now_ms += 1
    for number in range(3):
        pool.enqueue(with_adapter(f"b{number}", "blue", "acme"))
        pool.now_ms += 1
    pool.enqueue(with_adapter("c", "green", "acme"))
    pool.enqueue(with_adapter("d", "black", "initech"))
    wait_patiently(pool, ONE, 3)
    assert draining(pool, ONE) == {"green": "initech"}


def test_each_tenant_that_waits_has_an_adapter_drain_but_few_do_at_a_time(
    pool: VirtualPool,
) -> None:
    join(pool, ONE, adapter_slots=8, **dict.fromkeys("abcdefghijklm", MEMORY))
    for name in "abcdefghijklm":
        pool.enqueue(with_adapter(name, name))
        pool.now_ms += 1
    wait_patiently(pool, ONE, 8)
    assert sorted(draining(pool, ONE)) == ["a", "b"]
    assert len(set(draining(pool, ONE).values())) == 2


def test_an_adapter_goes_on_where_its_slot_is_not_needed_any_more(pool: VirtualPool) -> None:
    join(pool, ONE, blue=MEMORY, red=MEMORY, green=MEMORY)
    pool.enqueue(with_adapter("a", "blue"))
    pool.now_ms += 1
    pool.enqueue(with_adapter("b", "red"))
    pool.enqueue(with_adapter("c", "green"))
    wait_patiently(pool, ONE)
    assert draining(pool, ONE) == {"blue": "green"}
    pool.finish("b", 1)
    assert taken(pool, ONE) == ["a", "b", "c"]
    assert draining(pool, ONE) == {}


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_who_leaves_the_queue_has_nothing_drain_any_more(
    pool: VirtualPool, *, is_cancelled: bool
) -> None:
    """Or a tenant could keep others' adapters from starting requests, by asking and cancelling,
    which costs it nothing."""
    blue_drains_for_green(pool)
    if is_cancelled:
        pool.cancel("green")
    else:
        pool.finish("green", 0)
    assert draining(pool, ONE) == {}
    pool.enqueue(with_adapter("more", "blue"))
    assert taken(pool, ONE) == ["more"]


def test_who_has_waited_too_long_has_nothing_drain_any_more(pool: VirtualPool) -> None:
    blue_drains_for_green(pool)
    pool.now_ms += 3_001
    pool.claim(ONE, 64, adapter_slots=2)
    assert draining(pool, ONE) == {}


def test_who_runs_elsewhere_has_nothing_drain_any_more(pool: VirtualPool) -> None:
    blue_drains_for_green(pool)
    pool.register(TWO)
    pool.post(TWO, green=MEMORY)
    [started] = pool.claim(TWO, 64, adapter_slots=2)
    assert started.request_id == "green"
    assert draining(pool, ONE) == {}


def test_a_request_has_an_adapter_drain_on_one_worker_only(pool: VirtualPool) -> None:
    for worker_id in (ONE, TWO):
        join(pool, worker_id, adapter_slots=1, **{worker_id: MEMORY, "green": MEMORY})
        pool.enqueue(with_adapter(worker_id, worker_id))
    pool.enqueue(with_adapter("c", "green"))
    for worker_id in (ONE, TWO):
        wait_patiently(pool, worker_id, 1)
    assert [bool(draining(pool, worker_id)) for worker_id in (ONE, TWO)] == [True, False]
