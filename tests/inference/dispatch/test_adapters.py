"""LoRA adapters: which worker gets a request that needs one, and when a cold one gets its turn."""

from typing import cast

import pytest
from redis.exceptions import ResponseError

from gpu_workers.protocol import functions, keys
from inference.lua_constants import MOST_PASSES, WORKER_LEASE_MS
from tests.support.dispatch.virtual_pool import Ask, VirtualPool
from tests.support.dispatch.with_adapters import (
    DISK,
    MEMORY,
    ONE,
    SLOT,
    THREE,
    TWO,
    draining,
    holders,
    join,
    taken,
    with_adapter,
)

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
            pool.call(functions.POST_ADAPTERS, ONE, "", "blue", level)
    assert pool.levels(ONE) == {}


# where --------------------------------------------------------------------------------------------


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
    pool.post(ONE, c=MEMORY, d=MEMORY)
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


def test_the_queue_of_an_adapter_that_runs_is_not_hidden_behind_one_that_waits_for_a_slot(
    pool: VirtualPool,
) -> None:
    """However many are before it in the order."""
    join(pool, ONE, 2, adapter_slots=1)
    pool.enqueue(with_adapter("a", "blue", "acme"))
    pool.enqueue(Ask(request_id="plain", tenant="acme"))
    for number in range(5):
        pool.enqueue(with_adapter(f"red-{number}", "red", "acme"))
    pool.now_ms += 1
    pool.enqueue(with_adapter("b", "blue", "acme"))
    assert taken(pool, ONE) == ["a", "plain"]
    pool.finish("plain", 1)
    assert taken(pool, ONE) == ["b"]


# turns --------------------------------------------------------------------------------------------


def wait_patiently(pool: VirtualPool, worker_id: str, adapter_slots: int = 2) -> None:
    """As many claims as a request lets go by, and the one in which it does no more."""
    for _ in range(MOST_PASSES + 1):
        assert pool.claim(worker_id, 64, adapter_slots=adapter_slots) == []


def test_a_slot_is_not_held_for_an_adapter_that_is_still_loading(pool: VirtualPool) -> None:
    """It is prefetched, and starts as soon as it has come; what is in memory goes first."""
    join(pool, ONE, adapter_slots=1, red=MEMORY)
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


def test_who_waits_for_a_slot_has_one_made_though_nobody_else_is_served(pool: VirtualPool) -> None:
    """So the wait for a drain is over after MOST_PASSES claims, however little is asked."""
    join(pool, ONE)
    for name in ("blue", "red", "green"):
        pool.enqueue(with_adapter(name, name))
    assert taken(pool, ONE) == ["blue", "red"]
    wait_patiently(pool, ONE)
    assert draining(pool, ONE) == {"blue": "green"}
    pool.enqueue(with_adapter("more", "blue"))
    assert taken(pool, ONE) == []
    pool.finish("blue", 1)
    assert taken(pool, ONE) == ["green"]
    assert draining(pool, ONE) == {}


def test_a_tenant_that_has_a_slot_gives_up_its_own_for_its_next_adapter(pool: VirtualPool) -> None:
    """Many adapters give nobody more slots."""
    join(pool, ONE)
    pool.enqueue(with_adapter("a", "red", "globex"))
    pool.now_ms += 1
    pool.enqueue(with_adapter("b", "blue", "acme"))
    pool.enqueue(with_adapter("c", "green", "acme"))
    wait_patiently(pool, ONE)
    assert draining(pool, ONE) == {"blue": "acme"}


def test_who_has_most_slots_gives_one_up(pool: VirtualPool) -> None:
    join(pool, ONE, adapter_slots=3)
    pool.enqueue(with_adapter("a", "red", "globex"))
    pool.now_ms += 1
    for number in range(3):
        pool.enqueue(with_adapter(f"b{number}", "blue", "acme"))
        pool.now_ms += 1
    pool.enqueue(with_adapter("c", "green", "acme"))
    pool.enqueue(with_adapter("d", "black", "initech"))
    wait_patiently(pool, ONE, 3)
    assert draining(pool, ONE) == {"blue": "initech"}


def test_each_tenant_that_waits_has_an_adapter_drain_but_few_do_at_a_time(
    pool: VirtualPool,
) -> None:
    join(pool, ONE, adapter_slots=8)
    for name in "abcdefghijklm":
        pool.enqueue(with_adapter(name, name))
        pool.now_ms += 1
    wait_patiently(pool, ONE, 8)
    assert sorted(draining(pool, ONE)) == ["a", "b"]
    assert len(set(draining(pool, ONE).values())) == 2


def test_an_adapter_goes_on_where_its_slot_is_not_needed_any_more(pool: VirtualPool) -> None:
    join(pool, ONE)
    pool.enqueue(with_adapter("a", "blue"))
    pool.now_ms += 1
    pool.enqueue(with_adapter("b", "red"))
    pool.enqueue(with_adapter("c", "green"))
    wait_patiently(pool, ONE)
    assert draining(pool, ONE) == {"blue": "green"}
    pool.finish("b", 1)
    assert taken(pool, ONE) == ["a", "b", "c"]
    assert draining(pool, ONE) == {}


def test_a_request_has_an_adapter_drain_on_one_worker_only(pool: VirtualPool) -> None:
    for worker_id in (ONE, TWO):
        join(pool, worker_id, adapter_slots=1)
        pool.enqueue(with_adapter(worker_id, worker_id))
    pool.enqueue(with_adapter("c", "green"))
    for worker_id in (ONE, TWO):
        wait_patiently(pool, worker_id, 1)
    assert [bool(draining(pool, worker_id)) for worker_id in (ONE, TWO)] == [True, False]


def test_an_old_worker_that_claims_with_a_list_of_adapters_is_refused(
    pool: VirtualPool,
) -> None:
    """Its arguments would be taken for others."""
    join(pool, ONE)
    with pytest.raises(ResponseError, match=r"(?i)function not found"):
        pool.call("penstock_claim_1", ONE, b"info", 4, 0, 2, "blue", 1)
