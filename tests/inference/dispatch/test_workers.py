"""Which worker gets a request: KV cache and pace; and how much a class may hold."""

from collections import Counter

import pytest
from redis.exceptions import ResponseError

from gpu_workers.protocol import functions, keys
from inference.lua_constants import STALE_LOOP_MS
from tests.support.dispatch.virtual_pool import Ask, VirtualPool

ONE, TWO, THREE = "one#1", "two#1", "three#1"


def an_ask(name: str, tenant: str = "acme", **changes: object) -> Ask:
    return Ask(**({"request_id": name, "tenant": tenant} | changes))  # type: ignore[arg-type]


def taken(pool: VirtualPool, worker_id: str) -> list[str]:
    return [each.request_id for each in pool.inbox(worker_id)]


# the KV cache -------------------------------------------------------------------------------------


def test_a_worker_is_given_no_more_tokens_than_its_kv_cache_holds(pool: VirtualPool) -> None:
    pool.register(ONE)
    pool.claim(ONE, 64, kv_tokens=1000)
    for name in "abcdef":
        pool.enqueue(an_ask(name, prompt=200, output=100))
    assert taken(pool, ONE) == ["a", "b", "c"]
    pool.finish("a", 1, 200, 100)
    assert taken(pool, ONE) == ["d"]


def test_what_a_request_did_not_need_is_free_for_the_next(pool: VirtualPool) -> None:
    pool.register(ONE)
    pool.claim(ONE, 64, kv_tokens=1000)
    for name in "abcd":
        pool.enqueue(an_ask(name, prompt=200, output=100))
    assert taken(pool, ONE) == ["a", "b", "c"]
    pool.settle(ONE, [("a", 1, 50, 10), ("b", 1, 50, 10)])
    assert [each.request_id for each in pool.claim(ONE, 64, kv_tokens=1000)] == ["d"]


def test_a_request_that_fits_no_cache_runs_alone(pool: VirtualPool) -> None:
    pool.register(ONE)
    pool.claim(ONE, 64, kv_tokens=100)
    pool.enqueue(an_ask("large", prompt=200, output=100))
    pool.enqueue(an_ask("small", prompt=10, output=10))
    assert taken(pool, ONE) == ["large"]


def test_a_large_request_is_not_starved_by_small_ones(pool: VirtualPool) -> None:
    """Small ones of another tenant go by for a while; then the cache is left to empty."""
    pool.register(ONE)
    pool.claim(ONE, 64, kv_tokens=1000)
    for number in range(100):
        pool.enqueue(an_ask(f"s{number:03d}", prompt=50, output=50))
    running = pool.inbox(ONE)
    pool.enqueue(an_ask("large", tenant="globex", prompt=500, output=400))
    for _ in range(30):
        each = running.pop(0)
        pool.finish(each.request_id, each.attempt, 50, 50)
        started = pool.inbox(ONE)
        if "large" in [one.request_id for one in started]:
            break
        running.extend(started)
    else:
        raise AssertionError("the large request never ran")


def test_part_of_the_cache_is_kept_for_who_is_below_his_share(pool: VirtualPool) -> None:
    pool.register(ONE)
    pool.claim(ONE, 64, kv_tokens=1600)
    pool.enqueue(an_ask("earlier", tenant="globex", prompt=50, output=50))
    pool.finish("earlier", 1, 50, 50)
    for number in range(20):
        pool.enqueue(an_ask(f"f{number}", prompt=50, output=50))
    assert len(taken(pool, ONE)) == 1 + 15
    pool.enqueue(an_ask("newcomer", tenant="globex", prompt=50, output=50))
    assert taken(pool, ONE) == ["newcomer"]


# pace ---------------------------------------------------------------------------------------------


def test_a_worker_at_a_quarter_of_the_speed_is_given_a_sixteenth(pool: VirtualPool) -> None:
    for worker in (ONE, TWO, THREE):
        pool.register(worker)
        pool.claim(worker, 64)
    for number in range(192):
        pool.enqueue(an_ask(f"r{number}"))
    held = {worker: pool.inbox(worker) for worker in (ONE, TWO, THREE)}
    for worker in (ONE, TWO, THREE):
        pool.settle(worker, [], step_us=40_000 if worker == THREE else 10_000)
    for worker, requests in held.items():
        for each in requests:
            pool.finish(each.request_id, each.attempt, 10, 10)
        pool.claim(worker, 64)
    for number in range(300):
        pool.enqueue(an_ask(f"s{number}"))
    counts = Counter({worker: len(pool.inbox(worker)) for worker in (ONE, TWO, THREE)})
    assert counts == {ONE: 64, TWO: 64, THREE: 4}


def test_a_worker_that_is_slow_since_it_bears_more_keeps_its_slots(pool: VirtualPool) -> None:
    pool.register(ONE)
    pool.claim(ONE, 64)
    for number in range(40):
        pool.enqueue(an_ask(f"r{number}"))
    pool.settle(ONE, [], step_us=40_000)
    pool.register(TWO)
    pool.claim(TWO, 64)
    pool.enqueue(an_ask("alone"))
    pool.settle(TWO, [], step_us=10_000)
    pool.claim(ONE, 64)
    assert pool.redis.zscore(keys.pool_slots(pool.name), ONE) == 64


# the loop -----------------------------------------------------------------------------------------


def test_a_worker_whose_loop_is_stale_keeps_what_it_holds_and_is_given_nothing(
    pool: VirtualPool,
) -> None:
    pool.register(ONE)
    pool.claim(ONE, 4)
    pool.enqueue(an_ask("held"))
    for _ in range(10):
        pool.now_ms += 1_000
        pool.beat(ONE, STALE_LOOP_MS + 1)
    assert pool.enqueue(an_ask("late")) == "queued"
    assert pool.reap() == []
    assert pool.finish("held", 1)
    assert taken(pool, ONE) == ["held"], "nor is it given what its own request made room for"
    assert [each.request_id for each in pool.claim(ONE, 4)] == ["late"]


def test_a_worker_whose_loop_is_only_late_keeps_its_credit(pool: VirtualPool) -> None:
    pool.register(ONE)
    pool.claim(ONE, 4)
    pool.beat(ONE, STALE_LOOP_MS)
    assert pool.enqueue(an_ask("one")) == "assigned"


def test_a_beat_neither_registers_a_worker_nor_revives_a_fenced_one(pool: VirtualPool) -> None:
    with pytest.raises(ResponseError, match=r"^UNKNOWN"):
        pool.beat(ONE)
    pool.call(functions.REGISTER, ONE, "name", b"info", pool.now_ms)
    pool.call(functions.REGISTER, TWO, "name", b"info", pool.now_ms)
    with pytest.raises(ResponseError, match=r"^FENCED"):
        pool.beat(ONE)


# classes ------------------------------------------------------------------------------------------


def test_the_ceiling_of_batch_falls_as_the_pool_saturates(pool: VirtualPool) -> None:
    """Batch has had little so far, so by the counters it is next; it may hold half the slots."""
    pool.register(ONE)
    pool.claim(ONE, 0)
    for number in range(40):
        pool.enqueue(an_ask(f"b{number}", service_class="batch", output=1, prompt=1))
        pool.enqueue(an_ask(f"i{number}", tenant="globex", output=500))
    started = [each.request_id[0] for each in pool.claim(ONE, 16)]
    assert Counter(started) == {"b": 8, "i": 8}


def test_a_class_alone_has_every_slot(pool: VirtualPool) -> None:
    for number in range(40):
        pool.enqueue(an_ask(f"b{number}", service_class="batch"))
    pool.register(ONE)
    assert len(pool.claim(ONE, 16)) == 16
