"""LoRA adapters: which worker gets a request that needs one, and when a cold one gets its turn."""

from typing import cast

import pytest
from redis.exceptions import ResponseError

from gpu_workers.protocol import functions, keys
from gpu_workers.protocol.adapters import AdapterLevel
from inference.lua_constants import WORKER_LEASE_MS
from tests.support.dispatch.virtual_pool import Ask, VirtualPool

ONE, TWO, THREE = "one#1", "two#1", "three#1"
DISK, MEMORY, SLOT = AdapterLevel.DISK, AdapterLevel.MEMORY, AdapterLevel.SLOT


def taken(pool: VirtualPool, worker_id: str) -> list[str]:
    return [each.request_id for each in pool.inbox(worker_id)]


def join(pool: VirtualPool, worker_id: str, slots: int = 64, **levels: AdapterLevel) -> None:
    """A worker of two adapter slots begins, with these adapters."""
    pool.register(worker_id)
    pool.post(worker_id, **levels)
    pool.claim(worker_id, slots, adapter_slots=2)


def holders(pool: VirtualPool, adapter: str) -> dict[str, int]:
    found = pool.redis.zrange(keys.pool_adapter_workers(pool.name, adapter), 0, -1, withscores=True)
    pairs = cast(list[tuple[bytes, float]], found)
    return {worker_id.decode(): int(level) for worker_id, level in pairs}


# levels -------------------------------------------------------------------------------------------


def test_what_a_worker_posts_is_known_of_it_and_of_the_adapter(pool: VirtualPool) -> None:
    join(pool, ONE, blue=SLOT, red=DISK)
    join(pool, TWO, red=MEMORY)
    assert pool.levels(ONE) == {"blue": SLOT, "red": DISK}
    assert holders(pool, "red") == {ONE: DISK, TWO: MEMORY}
    pool.post(ONE, red=None, blue=MEMORY, green=None)
    assert pool.levels(ONE) == {"blue": MEMORY}
    assert holders(pool, "red") == {TWO: MEMORY}
    assert holders(pool, "green") == {}


def test_a_worker_that_registers_anew_has_nothing(pool: VirtualPool) -> None:
    join(pool, ONE, blue=SLOT)
    pool.enqueue(with_adapter("a", "blue"))
    pool.post(ONE, red=DISK)
    pool.register(ONE)
    assert pool.levels(ONE) == {"blue": 0}
    assert holders(pool, "red") == {}
    [attempt] = pool.inbox(ONE)
    pool.finish(attempt.request_id, attempt.attempt)
    assert pool.levels(ONE) == {}


def test_what_a_fenced_process_held_goes_with_it(pool: VirtualPool) -> None:
    join(pool, ONE, blue=SLOT)
    pool.call(functions.REGISTER, "one#2", ONE, b"info", pool.now_ms)
    assert holders(pool, "blue") == {}
    with pytest.raises(ResponseError, match="FENCED"):
        pool.post(ONE, blue=SLOT)


def test_an_adapter_that_runs_is_to_come_again_where_it_is_gone(pool: VirtualPool) -> None:
    """What a worker says and what it was handed pass each other by."""
    join(pool, ONE, blue=SLOT)
    pool.enqueue(with_adapter("a", "blue"))
    pool.post(ONE, blue=None)
    assert holders(pool, "blue") == {ONE: 0}


def test_a_level_that_there_is_not_is_refused(pool: VirtualPool) -> None:
    join(pool, ONE)
    for level in ("4", "-1", "warm"):
        with pytest.raises(ResponseError, match="expected a level from 0 to 3"):
            pool.call(functions.POST_ADAPTERS, ONE, "blue", level)
    assert pool.levels(ONE) == {}


# where --------------------------------------------------------------------------------------------


def with_adapter(name: str, adapter: str, tenant: str | None = None) -> Ask:
    return Ask(request_id=name, tenant=tenant or adapter, adapter=adapter)


def test_a_request_goes_to_a_worker_that_holds_its_adapter(pool: VirtualPool) -> None:
    join(pool, ONE, 4, blue=SLOT)
    join(pool, TWO, 9, red=SLOT)
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
    join(pool, ONE, 4, blue=DISK)
    for number in range(8):
        join(pool, f"other-{number}#1", 9)
    pool.enqueue(with_adapter("a", "blue"))
    assert taken(pool, ONE) == ["a"]


def test_a_dead_holder_is_given_nothing(pool: VirtualPool) -> None:
    join(pool, ONE, 4, blue=SLOT)
    pool.now_ms += WORKER_LEASE_MS
    for number in range(8):
        join(pool, f"other-{number}#1", 9)
    pool.enqueue(with_adapter("a", "blue"))
    assert taken(pool, ONE) == []
    assert pool.waiting() == 0


def test_there_are_never_more_adapters_at_work_than_slots(pool: VirtualPool) -> None:
    pool.register(ONE)
    pool.claim(ONE, 64, adapter_slots=2)
    for name in "abcd":
        pool.enqueue(with_adapter(f"{name}1", name))
        pool.enqueue(with_adapter(f"{name}2", name))
    assert taken(pool, ONE) == ["a1", "a2", "b1", "b2"]
    assert pool.claim(ONE, 64, adapter_slots=2) == []
    pool.finish("a1", 1, 1, 1)
    assert taken(pool, ONE) == []
    pool.finish("a2", 1, 1, 1)
    assert taken(pool, ONE)[0] == "c1"


def test_requests_without_an_adapter_run_beside_those_with_one(pool: VirtualPool) -> None:
    pool.register(ONE)
    pool.claim(ONE, 64, adapter_slots=1)
    pool.enqueue(with_adapter("a", "blue"))
    pool.enqueue(with_adapter("b", "red"))
    pool.enqueue(Ask(request_id="plain", tenant="acme"))
    assert set(taken(pool, ONE)) == {"a", "plain"}


def test_a_hot_adapter_drains_so_that_a_cold_one_gets_its_turn(pool: VirtualPool) -> None:
    """Two tenants keep both adapter slots busy for ever; the third is not starved by that."""
    pool.register(ONE)
    pool.claim(ONE, 8, adapter_slots=2)
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
