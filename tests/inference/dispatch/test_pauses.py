"""A pause is not a death: where nobody was heard of for a while, it was Redis that stood still, or
its clock that was set. Only then does a lease last longer, and once."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from gpu_workers.protocol import functions, keys
from inference.lua_constants import WORKER_LEASE_MS
from tests.support.dispatch.virtual_pool import Ask, VirtualPool
from tests.support.servers import TestServers

ONE, TWO = "one#1", "two#1"
LOOK_MS = 500
HOURS_MS = 3_600_000


@pytest.fixture
def pool(test_servers: TestServers) -> Iterator[VirtualPool]:
    """Two workers, of which the first holds the request `a`; both have been heard of for a while,
    and so has a gateway."""
    with Redis.from_url(test_servers.dispatch_redis.url, socket_timeout=None) as redis:
        redis.flushall()
        pool = VirtualPool(redis)
        pool.register(ONE)
        pool.claim(ONE, 1)
        pool.enqueue(Ask(request_id="a", tenant="acme"))
        pool.register(TWO)
        for _ in range(4):
            let_pass(pool, LOOK_MS)
        yield pool


def let_pass(pool: VirtualPool, milliseconds: int, *, silent: str = "") -> list[tuple[int, str]]:
    """Time passes in which workers claim and a gateway looks; what it finds lost, and when."""
    found = []
    for _ in range(milliseconds // LOOK_MS):
        pool.now_ms += LOOK_MS
        for worker_id in {ONE, TWO} - {silent, silent and TWO}:
            pool.claim(worker_id, 1)
        found += [(pool.now_ms, request_id) for request_id, _ in pool.reap()]
    return found


@pytest.mark.parametrize("pause_ms", [3_500, 10_000, 30_000, 6 * HOURS_MS])
def test_nobody_is_lost_after_a_pause_of_all_whoever_calls_first(
    pool: VirtualPool, pause_ms: int
) -> None:
    pool.now_ms += pause_ms
    assert pool.reap() == [], "a gateway is the first to be back"
    assert let_pass(pool, 20_000) == []
    assert pool.finish("a", 1)


def test_nobody_is_lost_whose_fellow_is_heard_of_first(pool: VirtualPool) -> None:
    pool.now_ms += 30_000
    pool.settle(TWO, [])
    pool.now_ms += LOOK_MS
    assert pool.reap() == []
    assert let_pass(pool, 20_000) == []


def test_who_is_not_back_a_lease_after_the_pause_is_lost(pool: VirtualPool) -> None:
    pool.now_ms += 30_000
    back_ms = pool.now_ms
    found = let_pass(pool, 2 * WORKER_LEASE_MS, silent=ONE)
    assert {request_id for _, request_id in found} == {"a"}
    assert WORKER_LEASE_MS <= found[0][0] - back_ms <= WORKER_LEASE_MS + 2 * LOOK_MS


def test_a_worker_that_dies_while_others_call_is_lost_after_its_lease_as_ever(
    pool: VirtualPool,
) -> None:
    died_ms = pool.now_ms
    found = let_pass(pool, 2 * WORKER_LEASE_MS, silent=ONE)
    assert {request_id for _, request_id in found} == {"a"}
    assert found[0][0] - died_ms <= WORKER_LEASE_MS + LOOK_MS


def test_what_died_with_its_gateways_is_found_by_a_sweeper_that_comes_rarely(
    pool: VirtualPool,
) -> None:
    found = []
    for _ in range(3):
        pool.now_ms += 10_000
        found.append(pool.reap())
    assert found[0] == [], "it may have been a pause"
    assert found[1] == [("a", 1)]


def test_a_fenced_worker_holds_nothing_however_long_the_pause(pool: VirtualPool) -> None:
    under_its_name = ONE  # `VirtualPool.register` takes the id for the name
    pool.call(functions.REGISTER, "one#2", under_its_name, b"info", pool.now_ms)
    pool.now_ms += 30_000
    assert pool.reap() == [("a", 1)]


def test_a_worker_is_not_forgotten_by_a_clock_that_was_set_forward(pool: VirtualPool) -> None:
    pool.finish("a", 1)
    pool.now_ms += 6 * HOURS_MS
    pool.reap()
    assert pool.claim(ONE, 1) == []
    assert pool.enqueue(Ask(request_id="b", tenant="acme")) == "assigned"


def test_a_worker_that_dies_after_the_clock_was_set_back_is_lost_after_its_lease(
    pool: VirtualPool,
) -> None:
    pool.now_ms -= 6 * HOURS_MS
    assert let_pass(pool, 20_000) == []
    died_ms = pool.now_ms
    found = let_pass(pool, 2 * WORKER_LEASE_MS, silent=ONE)
    assert {request_id for _, request_id in found} == {"a"}
    assert found[0][0] - died_ms <= WORKER_LEASE_MS + LOOK_MS


def test_a_worker_that_was_dead_before_the_clock_was_set_back_does_not_live_for_hours(
    pool: VirtualPool,
) -> None:
    pool.now_ms += LOOK_MS
    pool.now_ms -= 6 * HOURS_MS
    found = let_pass(pool, 3 * WORKER_LEASE_MS, silent=ONE)
    assert {request_id for _, request_id in found} == {"a"}


def test_a_sweeper_leaves_what_is_overdue_to_gateways_that_were_kept_from_calling(
    pool: VirtualPool,
) -> None:
    for name in "bc":
        pool.enqueue(Ask(request_id=name, tenant="acme", seconds=5))
    pool.now_ms += 30_000
    assert pool.reap_gone() == [], "a sweeper is the first to be back"
    assert {request_id for _, request_id in let_pass(pool, LOOK_MS)} == {"c"}
    for _ in range(20):
        let_pass(pool, LOOK_MS)
        assert pool.reap_gone() == []


def test_a_worker_that_leaves_requests_behind_is_found_at_once(pool: VirtualPool) -> None:
    pool.call(functions.LEAVE, ONE, pool.now_ms)
    assert pool.reap() == [("a", 1)]
    assert pool.requeue("a", 1)[0] == b"requeued"
    assert [each.attempt for each in pool.inbox(TWO)] == [2]


STEPS_MS = {"pause": 30_000, "forward": 6 * HOURS_MS, "back": -6 * HOURS_MS}
SWEEP_MS = 5_000
stepped = pytest.mark.parametrize("step_ms", STEPS_MS.values(), ids=STEPS_MS)


def call_first(pool: VirtualPool, caller: str) -> None:
    """Who is the first to be back, before anybody has noted what happened."""
    match caller:
        case "worker":
            pool.claim(TWO, 1)
        case "end":
            pool.finish("b", 1)
        case "newcomer":
            pool.enqueue(Ask(request_id="newcomer", tenant="globex", seconds=600))
        case "sweeper":
            pool.reap_gone("dead")
        case _:
            pool.reap()


@stepped
@pytest.mark.parametrize("first", ["worker", "end", "newcomer", "sweeper", "gateway"])
@pytest.mark.parametrize("is_missed", [False, True])
def test_the_living_lose_nothing_and_the_dead_leave_whatever_the_clock_does(
    pool: VirtualPool, step_ms: int, first: str, is_missed: bool
) -> None:
    """Both workers are full; of each gateway a request waits, and one gateway is dead."""
    for name, gateway in (("b", "gateway"), ("hers", "gateway"), ("theirs", "dead")):
        pool.enqueue(Ask(request_id=name, tenant="acme", gateway=gateway, seconds=600))
    if is_missed:
        let_pass(pool, 8_000)
        assert pool.reap_gone("dead") == []
    pool.now_ms += step_ms
    call_first(pool, first)
    back_ms = pool.now_ms
    gone: list[tuple[str, int]] = []
    while not gone:
        assert let_pass(pool, SWEEP_MS) == []
        gone = pool.reap_gone("dead")
        assert pool.now_ms - back_ms <= 20_000
    assert gone == [("theirs", 0)]
    assert pool.finish("theirs", 0)
    assert pool.reap_gone("gateway") == []
    pool.finish("a", 1)
    pool.finish("b", 1)
    let_pass(pool, LOOK_MS)
    state: Any = pool.redis.hget(keys.pool_request(pool.name, "hers"), "state")
    assert state == b"running"


@pytest.mark.parametrize("step_ms", [6 * HOURS_MS, -6 * HOURS_MS], ids=["forward", "back"])
def test_what_waits_waits_as_long_as_ever_while_the_clock_is_set(
    pool: VirtualPool, step_ms: int
) -> None:
    pool.enqueue(Ask(request_id="b", tenant="acme", seconds=600))
    pool.enqueue(Ask(request_id="c", tenant="acme", seconds=20))
    assert let_pass(pool, 10_000) == []
    pool.now_ms += step_ms
    set_ms = pool.now_ms
    found = let_pass(pool, 15_000)
    assert {request_id for _, request_id in found} == {"c"}
    assert 9_000 <= found[0][0] - set_ms <= 11_000
