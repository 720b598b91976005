"""LoRA adapters: which worker gets a request that needs one, and who waits behind whom."""

from typing import cast

from gpu_workers.protocol import keys
from inference.lua_constants import WORKER_LEASE_MS
from tests.support.dispatch.virtual_pool import Ask, VirtualPool
from tests.support.dispatch.with_adapters import (
    DISK,
    MEMORY,
    ONE,
    SLOT,
    THREE,
    TWO,
    join,
    taken,
    with_adapter,
)


def test_a_request_goes_to_a_worker_that_holds_its_adapter(pool: VirtualPool) -> None:
    join(pool, ONE, 4, blue=SLOT)
    join(pool, TWO, 9, red=SLOT, green=MEMORY)
    pool.enqueue(with_adapter("a", "blue"))
    pool.enqueue(with_adapter("b", "red"))
    pool.enqueue(with_adapter("c", "green"))
    assert taken(pool, ONE) == ["a"]
    assert taken(pool, TWO) == ["b", "c"]


def test_a_request_goes_to_the_worker_that_has_its_adapter_the_nearest(pool: VirtualPool) -> None:
    join(pool, ONE, 9, blue=DISK)
    join(pool, TWO, 4, blue=MEMORY)
    join(pool, THREE, 20)
    pool.enqueue(with_adapter("a", "blue"))
    assert taken(pool, TWO) == ["a"]


def test_a_holder_is_found_beyond_those_with_most_credit(pool: VirtualPool) -> None:
    join(pool, ONE, 4, blue=MEMORY)
    for number in range(8):
        join(pool, f"other-{number}#1", 9)
    pool.enqueue(with_adapter("a", "blue"))
    assert taken(pool, ONE) == ["a"]


def test_the_nearest_is_found_among_many_that_have_the_adapter_on_disk(pool: VirtualPool) -> None:
    """As all that share a folder have."""
    join(pool, ONE, 4, blue=SLOT)
    for number in range(60):
        join(pool, f"other-{number}#1", 9, blue=DISK)
    for number in range(4):
        pool.enqueue(with_adapter(f"{number}", "blue"))
    assert taken(pool, ONE) == ["0", "1", "2", "3"]


def test_a_dead_holder_is_given_nothing(pool: VirtualPool) -> None:
    join(pool, ONE, 4, blue=SLOT)
    pool.now_ms += WORKER_LEASE_MS
    for number in range(8):
        join(pool, f"other-{number}#1", 9)
    pool.enqueue(with_adapter("a", "blue"))
    assert pool.messages(ONE) == []
    assert sum(len(pool.prefetches(f"other-{number}#1")) for number in range(8)) == 1


def test_there_are_never_more_adapters_at_work_than_slots(pool: VirtualPool) -> None:
    join(pool, ONE, **dict.fromkeys("abcd", MEMORY))
    for name in "abcd":
        pool.enqueue(with_adapter(f"{name}1", name))
        pool.enqueue(with_adapter(f"{name}2", name))
    assert taken(pool, ONE) == ["a1", "a2", "b1", "b2"]
    assert pool.claim(ONE, 64, adapter_slots=2) == []
    pool.finish("a1", 1, 1, 1)
    assert taken(pool, ONE) == []
    pool.finish("a2", 1, 1, 1)
    assert taken(pool, ONE)[0] == "c1"


def test_who_needs_no_adapter_waits_behind_nobody_that_waits_for_one(pool: VirtualPool) -> None:
    """However many tenants wait for adapters, and have been served less."""
    join(pool, ONE, 8, adapter_slots=1, blue=MEMORY)
    pool.enqueue(Ask(request_id="before", tenant="plain"))
    pool.enqueue(with_adapter("first", "blue"))
    assert taken(pool, ONE) == ["before", "first"]
    for tenant in range(40):
        for number in range(3):
            pool.enqueue(with_adapter(f"{tenant}-{number}", f"{tenant}-{number}", f"t{tenant}"))
    pool.enqueue(Ask(request_id="a", tenant="plain"))
    pool.enqueue(Ask(request_id="b", tenant="t3", key="other"))
    assert taken(pool, ONE) == ["a", "b"]


def test_a_tenants_requests_without_an_adapter_pass_its_own_that_wait_for_one(
    pool: VirtualPool,
) -> None:
    join(pool, ONE, 8, adapter_slots=1, **{"adapter-0": MEMORY})
    for number in range(9):
        pool.enqueue(with_adapter(f"a{number}", f"adapter-{number}", "acme"))
    pool.enqueue(Ask(request_id="plain", tenant="acme"))
    assert taken(pool, ONE) == ["a0", "plain"]


def test_requests_without_an_adapter_run_beside_those_with_one(pool: VirtualPool) -> None:
    join(pool, ONE, adapter_slots=1, blue=MEMORY, red=MEMORY)
    pool.enqueue(with_adapter("a", "blue"))
    pool.enqueue(with_adapter("b", "red"))
    pool.enqueue(Ask(request_id="plain", tenant="acme"))
    assert set(taken(pool, ONE)) == {"a", "plain"}


def test_a_hot_adapter_drains_so_that_a_cold_one_gets_its_turn(pool: VirtualPool) -> None:
    """Two tenants keep both adapter slots busy for ever; the third is not starved by that."""
    join(pool, ONE, 8, blue=MEMORY, red=MEMORY, green=MEMORY)
    number = 0
    running: list[tuple[str, int]] = []

    def flood(adapter: str) -> None:
        nonlocal number
        number += 1
        pool.enqueue(with_adapter(f"{adapter}-{number:04d}", adapter))

    def collect() -> list[str]:
        messages = pool.inbox(ONE)
        running.extend((each.request_id, each.attempt) for each in messages)
        return [each.request_id for each in messages]

    for _ in range(8):
        flood("blue")
        flood("red")
    collect()
    pool.enqueue(with_adapter("cold", "green"))
    for turn in range(200):
        request_id, attempt = running.pop(0)
        pool.finish(request_id, attempt, 100, 100)
        flood(request_id.partition("-")[0])
        pool.now_ms += 10
        if turn % 50 == 0:
            pool.settle(ONE, [])
        if "cold" in collect():
            break
    else:
        raise AssertionError("the cold adapter never got its turn")
    state = cast(dict[bytes, bytes], pool.redis.hgetall(keys.pool_worker_adapters(pool.name, ONE)))
    assert len([field for field in state if field.startswith(b"run:")]) <= 2


def test_the_queue_of_an_adapter_that_runs_is_not_hidden_behind_one_that_waits_for_a_slot(
    pool: VirtualPool,
) -> None:
    """However many are before it in the order."""
    join(pool, ONE, 2, adapter_slots=1, blue=MEMORY, red=MEMORY)
    pool.enqueue(with_adapter("a", "blue", "acme"))
    pool.enqueue(Ask(request_id="plain", tenant="acme"))
    for number in range(5):
        pool.enqueue(with_adapter(f"red-{number}", "red", "acme"))
    pool.now_ms += 1
    pool.enqueue(with_adapter("b", "blue", "acme"))
    assert taken(pool, ONE) == ["a", "plain"]
    pool.finish("plain", 1)
    assert taken(pool, ONE) == ["b"]
