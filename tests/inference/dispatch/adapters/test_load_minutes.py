"""For how long a tenant's loads may hold engines up in a minute: its tier says so."""

from dataclasses import replace

import pytest

from gpu_workers.protocol import keys
from inference.lua_constants import MOST_LEVELS
from tests.support.dispatch.virtual_pool import Ask, VirtualPool
from tests.support.dispatch.with_adapters import DISK, MEMORY, ONE, join, taken, with_adapter

MOST_MS, LOAD_US = 1_000, 600_000


def asks_for(adapter: str, *, name: str = "", tenant: str = "loads", load_ms: int = MOST_MS) -> Ask:
    return replace(with_adapter(name or adapter, adapter, tenant=tenant), load_ms=load_ms)


@pytest.fixture
def spent(pool: VirtualPool) -> VirtualPool:
    """A worker that has loaded for a tenant what its tier allows in a minute, and runs nothing."""
    join(pool, ONE, adapter_slots=8)
    for adapter in ("blue", "red"):
        pool.enqueue(asks_for(adapter))
        assert pool.prefetches(ONE) == [adapter]
        pool.post_loaded(ONE, adapter, LOAD_US)
        assert taken(pool, ONE) == [adapter]
        pool.finish(adapter, 1)
    return pool


def test_beyond_it_a_request_that_would_have_one_loaded_is_refused(spent: VirtualPool) -> None:
    spent.now_ms += 10_000
    assert spent.ask(asks_for("green")) == [b"loads_full", 50_000, 1_200, MOST_MS]
    assert spent.waiting() == 0
    assert spent.prefetches(ONE) == []
    assert spent.ask(asks_for("green"))[0] == b"loads_full"


def test_what_is_in_memory_goes_on_to_answer(spent: VirtualPool) -> None:
    assert spent.enqueue(asks_for("blue", name="again")) == "assigned"
    assert spent.enqueue(Ask(request_id="plain", tenant="loads", load_ms=MOST_MS)) == "assigned"


def test_what_is_on_the_way_or_busy_is_waited_for(spent: VirtualPool) -> None:
    """It costs no load more."""
    spent.claim(ONE, 1, adapter_slots=8)
    assert spent.enqueue(asks_for("blue", name="first")) == "assigned"
    assert spent.enqueue(asks_for("red", name="second")) == "queued"
    assert spent.enqueue(asks_for("green", load_ms=0)) == "queued"
    assert spent.enqueue(asks_for("green", name="green too")) == "queued"


def test_it_is_one_tenants_and_others_have_theirs(spent: VirtualPool) -> None:
    assert spent.enqueue(asks_for("green", tenant="other")) == "queued"
    assert spent.prefetches(ONE) == ["green"]


def test_a_new_minute_begins_with_its_first_load(spent: VirtualPool) -> None:
    spent.now_ms += 60_000
    spent.beat(ONE)
    assert spent.enqueue(asks_for("green")) == "queued"
    assert spent.prefetches(ONE) == ["green"]
    spent.now_ms += 5_000
    spent.claim(ONE, 64, adapter_slots=8)
    spent.post_loaded(ONE, "green", 2 * LOAD_US)
    spent.now_ms += 40_000
    spent.beat(ONE)
    assert spent.ask(asks_for("grey")) == [b"loads_full", 20_000, 1_200, MOST_MS]


def test_who_waits_already_goes_on_to_wait_and_gets_it_in_the_next_minute(
    pool: VirtualPool,
) -> None:
    join(pool, ONE, adapter_slots=1)
    for adapter in ("blue", "red"):
        pool.enqueue(asks_for(adapter))
    assert pool.prefetches(ONE) == ["blue"]
    pool.post_loaded(ONE, "blue", 2 * LOAD_US)
    assert taken(pool, ONE) == ["blue"]
    pool.finish("blue", 1)
    for _ in range(20):
        pool.claim(ONE, 64, adapter_slots=1)
    assert pool.prefetches(ONE) == []
    pool.now_ms += 60_000
    pool.note_gateway("gateway")
    pool.claim(ONE, 64, adapter_slots=1)
    assert pool.prefetches(ONE) == ["red"]
    pool.post_loaded(ONE, "red", LOAD_US)
    assert taken(pool, ONE) == ["red"]


def test_a_clock_that_was_set_back_holds_nobody_up(spent: VirtualPool) -> None:
    spent.now_ms -= 3_600_000
    spent.claim(ONE, 64, adapter_slots=8)
    assert spent.enqueue(asks_for("green")) == "queued"
    assert spent.prefetches(ONE) == ["green"]


def test_loads_are_counted_whoever_has_asked_for_them(spent: VirtualPool) -> None:
    spent.post_loaded(ONE, "pinned", 5)
    spent.post_loaded(ONE, "blue", LOAD_US)
    spent.post(ONE, read=DISK, free=MEMORY)
    counts = spent.numbers(keys.pool_loads(spent.name))
    assert counts == {
        "n:blue": 2,
        "us:blue": 2 * LOAD_US,
        "n:red": 1,
        "us:red": LOAD_US,
        "n:pinned": 1,
        "us:pinned": 5,
    }
    assert spent.redis.smembers(keys.pool_loaded(spent.name)) == {b"blue", b"red", b"pinned"}


def test_a_worker_that_posts_loads_without_end_fills_nothing(pool: VirtualPool) -> None:
    join(pool, ONE)
    names = [f"adapter-{number}" for number in range(MOST_LEVELS + 10)]
    for first in range(0, len(names), 1_000):
        part = names[first : first + 1_000]
        call = pool.post_call(ONE, dict.fromkeys(part), dict.fromkeys(part, 10))
        pool.call(*call)
    assert pool.redis.hlen(keys.pool_loads(pool.name)) == 2 * MOST_LEVELS
    assert pool.redis.scard(keys.pool_loaded(pool.name)) == MOST_LEVELS
