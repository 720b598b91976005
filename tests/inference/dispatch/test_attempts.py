"""More than one attempt: requeue, preemption and adoption; and what a wait will be."""

from typing import cast

import pytest
from redis.exceptions import ResponseError

from gpu_workers.protocol import functions, keys
from inference.lua_constants import ATTEMPT_GAP
from tests.support.dispatch.virtual_pool import Ask, Started, VirtualPool

ONE, TWO = "one#1", "two#1"

Letters = list[tuple[bytes, dict[bytes, bytes]]]


def a_worker(pool: VirtualPool, worker_id: str = ONE, slots: int = 1) -> None:
    pool.register(worker_id)
    pool.claim(worker_id, slots)


def ids(messages: list[Started]) -> list[str]:
    return [each.request_id for each in messages]


# requeue ------------------------------------------------------------------------------------------


def test_what_a_dead_worker_held_is_tried_by_another_one_as_the_next_attempt(
    pool: VirtualPool,
) -> None:
    a_worker(pool, ONE)
    pool.enqueue(Ask(request_id="a", tenant="acme"))
    a_worker(pool, TWO, slots=0)
    assert pool.requeue("a", 1) == [b"requeued", 1]
    assert pool.claim(TWO, 1) == [Started("a", 2)]
    assert not pool.finish("a", 1)
    assert pool.finish("a", 2)


def test_a_request_that_is_requeued_comes_before_what_came_after_it(pool: VirtualPool) -> None:
    a_worker(pool, ONE)
    for name in "abc":
        pool.enqueue(Ask(request_id=name, tenant="acme"))
        pool.now_ms += 10
    pool.requeue("a", 1)
    pool.register(TWO)
    assert ids(pool.claim(TWO, 3)) == ["a", "b", "c"]


def test_a_worker_is_not_given_again_what_it_was_lost_with(pool: VirtualPool) -> None:
    a_worker(pool, ONE)
    pool.enqueue(Ask(request_id="a", tenant="acme"))
    pool.enqueue(Ask(request_id="b", tenant="acme"))
    pool.requeue("a", 1)
    assert ids(pool.claim(ONE, 2)) == ["b"]
    assert pool.waiting() == 1
    pool.register(TWO)
    assert pool.claim(TWO, 1) == [Started("a", 2)]


def test_the_third_lost_attempt_is_the_last_and_is_kept_as_a_dead_letter(
    pool: VirtualPool,
) -> None:
    pool.enqueue(Ask(request_id="a", tenant="acme"))
    for number in range(1, 4):
        pool.register(f"w{number}#1")
        assert pool.claim(f"w{number}#1", 1) == [Started("a", number)]
        answer = pool.requeue("a", number)
        assert answer[0] == (b"exhausted" if number == 3 else b"requeued")
    finish = (functions.FINISH, "a", 3, b"record", 0, 0, 1, "", "", "", pool.now_ms)
    assert pool.call(*finish)[0] == 1
    [(_, letter)] = cast(Letters, pool.redis.xrange(keys.pool_dead_letters(pool.name)))
    assert letter == {b"request": b"a", b"envelope": b"envelope", b"record": b"record"}


def test_only_the_current_attempt_can_be_requeued(pool: VirtualPool) -> None:
    a_worker(pool, ONE)
    pool.enqueue(Ask(request_id="a", tenant="acme"))
    assert pool.requeue("a", 2) == [b"stale"]
    assert pool.requeue("unknown", 1) == [b"stale"]
    pool.requeue("a", 1)
    assert pool.requeue("a", 1) == [b"stale"]


def test_a_requeued_request_is_charged_once(pool: VirtualPool) -> None:
    a_worker(pool, ONE)
    pool.enqueue(Ask(request_id="a", tenant="acme", prompt=100, output=50))
    pool.requeue("a", 1)
    assert pool.counter("acme") == 0
    pool.register(TWO)
    pool.claim(TWO, 1)
    pool.finish("a", 2, 100, 50)
    assert pool.counter("acme") == 100 + 2 * 50


def test_a_requeued_request_can_be_cancelled_and_finished_by_its_gateway(
    pool: VirtualPool,
) -> None:
    a_worker(pool, ONE)
    pool.enqueue(Ask(request_id="a", tenant="acme"))
    pool.requeue("a", 1)
    assert pool.cancel("a") == "queued"
    assert pool.finish("a", 0)
    pool.register(TWO)
    assert pool.claim(TWO, 1) == []


def test_a_request_that_ran_for_long_may_wait_as_long_again(pool: VirtualPool) -> None:
    a_worker(pool, ONE)
    pool.enqueue(Ask(request_id="a", tenant="acme"))
    pool.now_ms += 24 * 3600 * 1000
    pool.register(TWO)
    pool.reap()
    pool.requeue("a", 1)
    assert pool.claim(TWO, 1) == [Started("a", 2)]


def test_a_request_that_was_cancelled_while_it_ran_is_not_requeued(pool: VirtualPool) -> None:
    a_worker(pool, ONE)
    pool.enqueue(Ask(request_id="a", tenant="acme"))
    assert pool.cancel("a") == "running"
    assert pool.requeue("a", 1) == [b"stale"]
    assert pool.finish("a", 1)


def test_a_reason_that_is_none_is_refused(pool: VirtualPool) -> None:
    with pytest.raises(ResponseError, match="boredom"):
        pool.requeue("a", 1, "boredom")


def test_a_worker_whose_frames_were_lost_is_told_to_stop_and_may_try_again(
    pool: VirtualPool,
) -> None:
    a_worker(pool, ONE)
    pool.enqueue(Ask(request_id="a", tenant="acme"))
    pool.redis.delete(keys.pool_inbox(pool.name, ONE))
    assert pool.requeue("a", 1, "frames_lost") == [b"requeued", 1]
    stop, again = cast(list[bytes], pool.redis.lrange(keys.pool_inbox(pool.name, ONE), 0, -1))
    assert stop == b"cancel a 1\n"
    assert again.startswith(b"assign a 2")
    assert not pool.finish("a", 1)
    assert pool.finish("a", 2)


# preemption ---------------------------------------------------------------------------------------


def batch(name: str, tenant: str = "acme", *, is_resumable: bool = True) -> Ask:
    return Ask(request_id=name, tenant=tenant, service_class="batch", is_resumable=is_resumable)


def test_a_newcomer_without_a_slot_takes_that_of_the_batch_request_that_began_last(
    pool: VirtualPool,
) -> None:
    pool.register(ONE)
    for name in "abcd":
        pool.enqueue(batch(name))
        pool.now_ms += 10
        pool.claim(ONE, 4)
    assert pool.enqueue(Ask(request_id="quick", tenant="globex")) == "queued"
    assert pool.preemptions(ONE) == [Started("d", 1)]
    assert pool.requeue("d", 1, "preempted", b"with tokens") == [b"requeued", 1]
    assert pool.inbox(ONE) == [Started("quick", 1)]
    assert pool.waiting() == 1
    assert pool.redis.hget(keys.pool_request(pool.name, "d"), "envelope") == b"with tokens"
    pool.finish("quick", 1, 1, 1)
    assert pool.inbox(ONE) == [Started("d", 2)]


def test_what_cannot_go_on_elsewhere_and_what_is_not_batch_keeps_its_slot(
    pool: VirtualPool,
) -> None:
    pool.register(ONE)
    pool.enqueue(batch("a", is_resumable=False))
    pool.enqueue(Ask(request_id="b", tenant="acme", service_class="documents", is_resumable=True))
    pool.claim(ONE, 2)
    pool.enqueue(Ask(request_id="quick", tenant="globex"))
    assert pool.preemptions(ONE) == []


def test_a_flood_of_interactive_requests_takes_no_more_than_its_share_from_batch(
    pool: VirtualPool,
) -> None:
    pool.register(ONE)
    for number in range(9):
        pool.enqueue(batch(f"b{number}"))
    pool.claim(ONE, 9)
    for number in range(50):
        pool.enqueue(Ask(request_id=f"q{number}", tenant="globex"))
    assert len(pool.preemptions(ONE)) <= 9


def test_a_batch_request_gives_its_slot_up_twice_at_most(pool: VirtualPool) -> None:
    pool.register(ONE)
    pool.enqueue(batch("b"))
    assert pool.claim(ONE, 1) == [Started("b", 1)]
    for number in range(1, 4):
        pool.enqueue(Ask(request_id=f"q{number}", tenant="globex"))
        asked = pool.preemptions(ONE)
        if number == 3:
            assert asked == []
            break
        assert asked == [Started("b", number)]
        pool.requeue("b", number, "preempted")
        assert pool.inbox(ONE) == [Started(f"q{number}", 1)]
        pool.finish(f"q{number}", 1, 1, 1)
        assert pool.inbox(ONE) == [Started("b", number + 1)]


# adoption -----------------------------------------------------------------------------------------


def test_a_worker_takes_back_what_it_holds_after_redis_lost_it(pool: VirtualPool) -> None:
    asks = [Ask(request_id=name, tenant="acme") for name in "ab"]
    pool.register(ONE)
    assert pool.adopt(ONE, [(asks[0], 1), (asks[1], 2)]) == []
    assert pool.claim(ONE, 4) == []
    assert pool.scheduler()["free"] == 2
    assert pool.finish("a", 1, 10, 10)
    assert pool.finish("b", 2, 10, 10)
    assert pool.scheduler()["free"] == 4


def test_a_request_that_was_enqueued_again_goes_back_to_the_worker_that_holds_it(
    pool: VirtualPool,
) -> None:
    ask = Ask(request_id="a", tenant="acme")
    pool.enqueue(ask)
    pool.register(ONE)
    assert pool.adopt(ONE, [(ask, 1)]) == []
    assert pool.waiting() == 0
    assert pool.claim(ONE, 4) == []
    assert pool.finish("a", 1, 10, 10)


def test_a_stale_attempt_does_not_come_back_after_redis_was_lost(pool: VirtualPool) -> None:
    """The gateway has seen attempt 3; a worker that was paused since holds the first."""
    pool.enqueue(Ask(request_id="a", tenant="acme", attempts=3 + ATTEMPT_GAP))
    pool.register(ONE)
    assert pool.adopt(ONE, [(Ask(request_id="a", tenant="acme"), 1)]) == ["a"]
    assert pool.adopt(ONE, [(Ask(request_id="a", tenant="acme"), 3)]) == []


def test_what_is_queued_again_begins_as_an_attempt_that_none_before_was(
    pool: VirtualPool,
) -> None:
    pool.enqueue(Ask(request_id="a", tenant="acme", attempts=1 + ATTEMPT_GAP))
    pool.register(ONE)
    assert pool.claim(ONE, 1) == [Started("a", 2 + ATTEMPT_GAP)]
    assert not pool.finish("a", 2)


def test_what_another_worker_has_by_now_is_not_adopted(pool: VirtualPool) -> None:
    ask = Ask(request_id="a", tenant="acme")
    a_worker(pool, TWO, slots=1)
    pool.enqueue(ask)
    pool.register(ONE)
    assert pool.adopt(ONE, [(ask, 1), (Ask(request_id="b", tenant="acme"), 1)]) == ["a"]


def test_an_emptied_redis_has_another_epoch(pool: VirtualPool) -> None:
    assert pool.call(functions.EPOCH, "first") == b"first"
    assert pool.call(functions.EPOCH, "second") == b"first"
    pool.redis.delete(keys.pool_epoch(pool.name))
    assert pool.call(functions.EPOCH, "second") == b"second"


# the wait -----------------------------------------------------------------------------------------


def busy(pool: VirtualPool, *, seconds: float = 1.0) -> None:
    """One slot, which each request holds for so long."""
    a_worker(pool, ONE, slots=1)
    pool.enqueue(Ask(request_id="first", tenant="acme"))
    pool.now_ms += int(seconds * 1000)
    pool.finish("first", 1, 10, 10)
    pool.enqueue(Ask(request_id="second", tenant="acme"))


def test_nobody_can_tell_the_wait_before_anything_has_ended(pool: VirtualPool) -> None:
    a_worker(pool, ONE, slots=1)
    pool.enqueue(Ask(request_id="first", tenant="acme"))
    assert pool.ask(Ask(request_id="a", tenant="acme")) == [b"queued", 1, -1, 0]


def test_an_idle_pool_has_no_wait(pool: VirtualPool) -> None:
    a_worker(pool, ONE, slots=1)
    assert pool.outlook("acme") == [0, 0, 0, 0]


def test_the_wait_grows_with_what_the_same_tenant_has_waiting(pool: VirtualPool) -> None:
    busy(pool)
    assert pool.ask(Ask(request_id="a", tenant="acme"))[:3] == [b"queued", 1, 1000]
    assert pool.ask(Ask(request_id="b", tenant="acme"))[:3] == [b"queued", 2, 2000]
    assert pool.outlook("acme") == [3, 3000, 2, 2]


def test_a_newcomers_wait_is_one_slot_however_long_anothers_queue_is(pool: VirtualPool) -> None:
    busy(pool)
    for number in range(20):
        pool.enqueue(Ask(request_id=f"f{number}", tenant="acme"))
    assert pool.outlook("globex") == [1, 1000, 0, 20]


def test_a_request_that_would_rather_be_refused_is_where_its_promise_cannot_be_kept(
    pool: VirtualPool,
) -> None:
    busy(pool)
    picky = Ask(request_id="a", tenant="acme", seconds=0.9, on_saturation="refuse")
    assert pool.ask(picky) == [b"saturated", 1, 1000]
    assert pool.redis.exists(keys.pool_request(pool.name, "a")) == 0
    patient = Ask(request_id="b", tenant="acme", seconds=0.9)
    assert pool.ask(patient) == [b"queued", 1, 1000, 1]
    content = Ask(request_id="c", tenant="globex", seconds=1.1, on_saturation="refuse")
    assert pool.ask(content) == [b"queued", 1, 1000, 0]
