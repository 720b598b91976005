"""Who has an adapter loaded is charged what its worker's others did not get meanwhile."""

import pytest
from redis.exceptions import ResponseError

from gpu_workers.protocol import functions, keys
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

STEP_US, LOAD_US, STREAMS = 20_000, 300_000, 4
# A token at each of the fifteen steps, twice as dear as one of a prompt, for each who streams.
LOST = 2 * STREAMS * LOAD_US // STEP_US


@pytest.fixture
def busy(pool: VirtualPool) -> VirtualPool:
    """A worker whose streams get a token every 20 ms."""
    join(pool, ONE)
    for number in range(STREAMS):
        pool.enqueue(Ask(request_id=f"s{number}", tenant="streams", output=1_000))
    assert len(taken(pool, ONE)) == STREAMS
    pool.settle(ONE, [], step_us=STEP_US)
    return pool


def test_a_tenants_counter_has_what_its_load_took_from_others(busy: VirtualPool) -> None:
    before = busy.counter("streams")
    busy.enqueue(with_adapter("a", "blue", tenant="loads"))
    at_first = busy.counter("loads")
    busy.post_loaded(ONE, "blue", LOAD_US)
    assert taken(busy, ONE) == ["a"]
    asked = with_adapter("a", "blue", tenant="loads")
    busy.finish("a", 1, asked.prompt, asked.output)
    alone = at_first + asked.prompt + 2 * asked.output
    assert busy.counter("loads") == pytest.approx(alone + LOST)
    assert busy.counter("streams") == before


def test_who_loads_for_each_request_is_served_after_who_loads_nothing(busy: VirtualPool) -> None:
    busy.claim(ONE, STREAMS, adapter_slots=2)
    for number in range(3):
        busy.enqueue(Ask(request_id=f"plain-{number}", tenant="plain"))
        busy.enqueue(with_adapter(f"load-{number}", f"blue-{number}", tenant="loads"))
    for adapter in busy.prefetches(ONE):
        busy.post_loaded(ONE, adapter, LOAD_US)
    order = []
    for number in range(STREAMS):
        busy.finish(f"s{number}", 1, 10, 10)
        order += taken(busy, ONE)
    assert order[:3] == ["plain-0", "plain-1", "plain-2"]


def test_what_nobody_has_asked_for_is_nobodys_to_pay(busy: VirtualPool) -> None:
    """A pin, or a new version that is loaded ahead of its first request."""
    busy.enqueue(Ask(request_id="b", tenant="blue"))
    before = busy.counter("blue")
    busy.call(functions.PREFETCH, "blue", busy.now_ms)
    busy.post_loaded(ONE, "blue", LOAD_US)
    assert busy.counter("blue") == before


def test_a_load_that_is_told_of_later_is_charged_to_who_runs_with_it(busy: VirtualPool) -> None:
    """A worker that has left a prefetch unanswered loads for the request itself."""
    join(busy, TWO, 1)
    busy.enqueue(with_adapter("a", "blue", tenant="loads"))
    holder = ONE if busy.prefetches(ONE) else TWO
    busy.settle(holder, [], step_us=STEP_US)
    busy.post(holder, blue=None)
    assert taken(busy, holder) == ["a"]
    before = busy.counter("loads")
    busy.post_loaded(holder, "blue", LOAD_US)
    assert busy.counter("loads") > before


def test_who_runs_since_before_an_upgrade_gives_way_as_ever_and_pays_for_no_load(
    pool: VirtualPool,
) -> None:
    """An earlier library has noted whose turn it is, and not for which request."""
    join(pool, ONE, adapter_slots=1, blue=MEMORY, red=MEMORY)
    pool.enqueue(with_adapter("a", "blue"))
    assert taken(pool, ONE) == ["a"]
    pool.settle(ONE, [], step_us=STEP_US)
    state = keys.pool_worker_adapters(pool.name, ONE)
    pool.redis.hset(state, "turn:blue", f"{pool.now_ms} blue")
    before = pool.counter("blue")
    pool.post_loaded(ONE, "blue", LOAD_US)
    assert pool.counter("blue") == before
    pool.enqueue(with_adapter("b", "red"))
    for _ in range(MOST_PASSES + 1):
        pool.claim(ONE, 64, adapter_slots=1)
    assert draining(pool, ONE) == {"blue": "red"}
    pool.finish("a", 1)
    assert taken(pool, ONE) == ["b"]


def test_a_load_of_a_minute_is_the_longest(busy: VirtualPool) -> None:
    counters = []
    for name, load_us in (("blue", 60_000_000), ("red", 10**15)):
        busy.enqueue(with_adapter(name, name, tenant=f"of-{name}"))
        before = busy.counter(f"of-{name}")
        busy.post_loaded(ONE, name, load_us)
        taken(busy, ONE)
        counters.append(busy.counter(f"of-{name}") - before)
    assert counters[1] < 2 * counters[0]


@pytest.mark.parametrize("load_us", ["-1", "long"])
def test_a_time_that_is_none_is_refused(pool: VirtualPool, load_us: str) -> None:
    join(pool, ONE)
    with pytest.raises(ResponseError, match="expected microseconds"):
        pool.call(functions.POST_ADAPTERS, ONE, "", "blue", 2, load_us)
    assert pool.levels(ONE) == {}
