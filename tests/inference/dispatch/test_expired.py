"""Requests that nobody may start any more, at the head of the queue: bounded work a call, no live
one behind them is kept waiting, and none is lost."""

from tests.support.dispatch.virtual_pool import Ask, VirtualPool

WORKER = "worker#1"
# As many as one call may meet, with some to spare.
MOST_A_CALL = 200


def ask(name: str, tenant: str = "acme", **changes: object) -> Ask:
    return Ask(**({"request_id": name, "tenant": tenant} | changes))  # type: ignore[arg-type]


def expired_heads(pool: VirtualPool, count: int) -> None:
    """Of Acme, with a live request behind them; and one of Globex."""
    asks = [ask(f"dead-{number:04d}", seconds=1) for number in range(count)]
    pool.call_all([pool.enqueue_call(each) for each in asks])
    pool.enqueue(ask("live", seconds=600))
    pool.now_ms += 2_000
    pool.enqueue(ask("others", "globex", seconds=600))


def test_expired_heads_are_not_all_popped_by_one_claim(pool: VirtualPool) -> None:
    expired_heads(pool, 1_000)
    pool.register(WORKER)
    started = pool.claim(WORKER, 1)
    assert pool.waiting() >= 1_000 - MOST_A_CALL
    assert [each.request_id for each in started] == ["others"], "it is no worse off for them"


def test_what_is_behind_expired_heads_is_reached_by_the_next_claims(pool: VirtualPool) -> None:
    expired_heads(pool, 1_000)
    pool.register(WORKER)
    started: list[str] = []
    claims = 0
    while "live" not in started:
        started += [each.request_id for each in pool.claim(WORKER, 2)]
        claims += 1
        assert claims <= 20
    assert started == ["others", "live"]
    assert pool.waiting() == 0
    ended = {request_id for request_id, _ in pool.reap()}
    assert ended == {f"dead-{number:04d}" for number in range(1_000)}, "none is lost"


def test_expired_heads_of_many_tenants_are_not_all_popped_by_one_claim(pool: VirtualPool) -> None:
    asks = [ask(f"dead-{number:04d}", f"a-tenant-{number}", seconds=1) for number in range(1_000)]
    pool.call_all([pool.enqueue_call(each) for each in asks])
    pool.now_ms += 2_000
    pool.enqueue(ask("live", "zeta", seconds=600))
    pool.register(WORKER)
    started: list[str] = []
    claims = 0
    while not started:
        before = pool.waiting()
        started = [each.request_id for each in pool.claim(WORKER, 1)]
        assert before - pool.waiting() <= MOST_A_CALL
        claims += 1
        assert claims <= 20
    assert started == ["live"]


def test_a_finish_that_meets_expired_heads_does_bounded_work_too(pool: VirtualPool) -> None:
    pool.register(WORKER)
    pool.claim(WORKER, 1)
    pool.enqueue(ask("first"))
    expired_heads(pool, 1_000)
    pool.settle(WORKER, [])
    pool.finish("first", 1, 10, 10)
    assert pool.waiting() >= 1_000 - MOST_A_CALL
    assert [each.request_id for each in pool.inbox(WORKER)] == ["first", "others"]
