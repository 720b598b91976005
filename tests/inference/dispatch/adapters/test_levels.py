"""How near workers have adapters, and for how long that is known."""

from typing import cast

import pytest
from redis.exceptions import ResponseError

from gpu_workers.protocol import functions, keys
from inference.lua_constants import MOST_LEVELS
from tests.support.dispatch.virtual_pool import VirtualPool
from tests.support.dispatch.with_adapters import (
    DISK,
    MEMORY,
    ONE,
    SLOT,
    THREE,
    TWO,
    holders,
    join,
    with_adapter,
)


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
            pool.call(functions.POST_ADAPTERS, ONE, "", "blue", level, 0)
    assert pool.levels(ONE) == {}


def test_of_a_worker_that_is_forgotten_nothing_is_kept(pool: VirtualPool) -> None:
    """One that leaves, and one that dies; what is kept of another stays."""
    for worker_id in (ONE, TWO):
        join(pool, worker_id, blue=SLOT, red=DISK)
    join(pool, THREE, blue=DISK)
    pool.enqueue(with_adapter("a", "blue"))
    [attempt] = pool.inbox(ONE) or pool.inbox(TWO)
    pool.finish(attempt.request_id, attempt.attempt)
    pool.call(functions.LEAVE, ONE, pool.now_ms)
    for _ in range(2):  # of a pause, then of the worker
        pool.now_ms += 700_000
        pool.beat(THREE)
        pool.settle(THREE, [])
        pool.reap()
    kept = {key.decode() for key in cast(list[bytes], pool.redis.keys("*")) if b"dapter" in key}
    kept |= {key.decode() for key in cast(list[bytes], pool.redis.keys("*levels*"))}
    assert kept == {
        keys.pool_adapter_workers(pool.name, "blue"),
        keys.pool_worker_adapters(pool.name, THREE),
        keys.pool_worker_levels(pool.name, THREE),
    }


def test_a_name_that_no_adapter_has_is_refused(pool: VirtualPool) -> None:
    join(pool, ONE)
    for name in ("", "x" * 129, "two words", "two\nlines"):
        with pytest.raises(ResponseError, match="expected the name of an adapter"):
            pool.call(functions.POST_ADAPTERS, ONE, "", name, 1, 0)
    assert pool.levels(ONE) == {}


def test_of_a_worker_that_posts_without_end_so_much_is_kept(pool: VirtualPool) -> None:
    """What it has had before goes on to be known of it."""
    join(pool, ONE)
    names = [f"adapter-{number}" for number in range(MOST_LEVELS + 10)]
    for first in range(0, len(names), 2_000):
        pool.post(ONE, **dict.fromkeys(names[first : first + 2_000], DISK))
    assert len(pool.levels(ONE)) == MOST_LEVELS
    pool.post(ONE, **{names[0]: SLOT, names[-1]: SLOT, names[1]: None, "new": DISK})
    levels = pool.levels(ONE)
    assert (levels[names[0]], levels.get(names[-1]), levels["new"]) == (SLOT, None, DISK)
    assert len(levels) == MOST_LEVELS


def test_a_worker_that_had_many_leaves_their_sets_in_slices(pool: VirtualPool) -> None:
    """And keeps what it has posted since."""
    names = [f"adapter-{number}" for number in range(2_500)]
    join(pool, ONE)
    join(pool, TWO, **dict.fromkeys(names, DISK))
    pool.post(ONE, **dict.fromkeys(names, MEMORY))
    pool.register(ONE)
    again, *others = names
    pool.post(ONE, **{again: SLOT})
    assert pool.levels(ONE) == {again: SLOT}
    left = [sum(ONE in holders(pool, each) for each in others)]
    while pool.redis.keys("*:dropped:*"):
        pool.reap()
        left.append(sum(ONE in holders(pool, each) for each in others))
    assert len(left) == 3 and left == sorted(left, reverse=True) and left[-1] == 0
    assert not pool.redis.keys("*dropp*")
    assert holders(pool, again) == {ONE: SLOT, TWO: DISK}
    assert all(holders(pool, each) == {TWO: DISK} for each in others)


def test_one_that_registers_again_and_again_leaves_nothing_behind(pool: VirtualPool) -> None:
    names = [f"adapter-{number}" for number in range(1_500)]
    join(pool, ONE)
    for part in (names[:1_400], names[100:]):
        pool.post(ONE, **dict.fromkeys(part, MEMORY))
        pool.register(ONE)
    pool.reap()
    assert not any(holders(pool, each) for each in names)


def test_an_old_worker_that_claims_with_a_list_of_adapters_is_refused(
    pool: VirtualPool,
) -> None:
    """Its arguments would be taken for others."""
    join(pool, ONE, blue=MEMORY, red=MEMORY, green=MEMORY)
    with pytest.raises(ResponseError, match=r"(?i)function not found"):
        pool.call("penstock_claim_1", ONE, b"info", 4, 0, 2, "blue", 1)
