"""What a silent gateway has asked for is not started: it comes back with its gateway, or ends."""

import pytest

from inference.lua_constants import GATEWAY_LEASE_MS
from tests.support.dispatch.virtual_pool import Ask, VirtualPool

WORKER = "worker#1"
SILENT_MS = GATEWAY_LEASE_MS + 1_000
DEAD, ALIVE = "dead", "alive"


def ask(name: str, gateway: str = DEAD, **changes: object) -> Ask:
    fields = {"request_id": name, "tenant": "acme", "gateway": gateway, **changes}
    return Ask(**fields)  # type: ignore[arg-type]


def claimed(pool: VirtualPool, slots: int = 8) -> list[str]:
    pool.register(WORKER)
    return [each.request_id for each in pool.claim(WORKER, slots)]


def pass_time(pool: VirtualPool, milliseconds: int) -> None:
    """In which one gateway shows that it is there, and the other one does not."""
    for _ in range(milliseconds // 500):
        pool.now_ms += 500
        pool.reap(ALIVE)


def test_only_what_living_gateways_have_asked_for_is_started(pool: VirtualPool) -> None:
    for name in ("a", "b"):
        pool.enqueue(ask(name))
        pool.enqueue(ask(f"{name}-of-alive", ALIVE))
    pass_time(pool, SILENT_MS)
    assert claimed(pool) == ["a-of-alive", "b-of-alive"]
    assert pool.waiting() == 0


def test_a_slot_that_becomes_free_is_not_given_to_a_silent_gateways_request(
    pool: VirtualPool,
) -> None:
    pool.register(WORKER)
    pool.claim(WORKER, 1)
    pool.enqueue(ask("first", ALIVE))
    pool.enqueue(ask("a"))
    pool.enqueue(ask("b", ALIVE))
    for _ in range(2):
        pass_time(pool, SILENT_MS // 2)
        pool.settle(WORKER, [])
    pool.inbox(WORKER)
    pool.finish("first", 1, 100, 100)
    assert [each.request_id for each in pool.inbox(WORKER)] == ["b"]


def test_what_was_set_aside_comes_back_with_its_gateway(pool: VirtualPool) -> None:
    """A gateway, or the whole Redis, may have stood still for a while."""
    for name in ("a", "b"):
        pool.enqueue(ask(name))
    pool.now_ms += SILENT_MS
    assert claimed(pool) == []
    assert pool.reap(DEAD) == []
    assert claimed(pool) == ["a", "b"]


def test_what_was_cancelled_or_has_expired_while_it_was_set_aside_does_not_come_back(
    pool: VirtualPool,
) -> None:
    pool.enqueue(ask("cancelled"))
    pool.enqueue(ask("expired", seconds=8))
    pool.enqueue(ask("b"))
    pool.now_ms += SILENT_MS
    assert claimed(pool) == []
    assert pool.cancel("cancelled") == "queued"
    pool.now_ms += 2_000
    assert pool.reap(DEAD) == [("expired", 0)]
    assert claimed(pool) == ["b"]
    assert pool.finish("cancelled", 0)
    assert pool.finish("expired", 0)


def test_what_a_gateway_that_is_gone_has_waiting_is_found_however_long_it_might_wait(
    pool: VirtualPool,
) -> None:
    pool.enqueue(ask("waiting"))
    pool.enqueue(ask("late", seconds=1))
    pool.enqueue(ask("hers", ALIVE))
    pass_time(pool, SILENT_MS)
    assert pool.reap_gone(DEAD) == [], "it was not missed before"
    pass_time(pool, 6_000)
    assert pool.reap_gone(DEAD) == [("late", 0), ("waiting", 0)]
    for name in ("late", "waiting"):
        assert pool.finish(name, 0)
    assert pool.reap_gone(DEAD) == []
    assert claimed(pool) == ["hers"]


def test_what_a_dead_worker_held_of_a_gateway_that_is_gone_is_found(pool: VirtualPool) -> None:
    pool.register(WORKER)
    pool.claim(WORKER, 1)
    pool.enqueue(ask("a"))
    pool.now_ms += SILENT_MS
    pool.reap_gone(DEAD)
    pool.now_ms += 6_000
    assert pool.reap_gone(DEAD) == [("a", 1)]


@pytest.mark.parametrize("sign", ["reap", "enqueue"])
def test_a_gateway_that_shows_itself_is_not_gone(pool: VirtualPool, sign: str) -> None:
    """Whoever first looks after a pause of all finds everybody silent."""
    pool.enqueue(ask("a"))
    pool.now_ms += 30_000
    assert pool.reap_gone(DEAD) == []
    if sign == "reap":
        pool.reap(DEAD)
    else:
        pool.enqueue(ask("b"))
    pool.now_ms += 5_500
    assert pool.reap_gone(DEAD) == []
    assert "a" in claimed(pool)


def test_a_request_that_a_worker_brings_back_is_found_if_its_gateway_never_comes(
    pool: VirtualPool,
) -> None:
    """After a Redis that was lost together with the gateway."""
    pool.register(WORKER)
    pool.adopt(WORKER, [(ask("a"), 1)])
    pool.now_ms += SILENT_MS
    pool.reap_gone(DEAD)
    pool.now_ms += 6_000
    assert pool.reap_gone(DEAD) == [("a", 1)]


def test_gateways_that_were_gone_for_a_day_are_forgotten(pool: VirtualPool) -> None:
    pool.enqueue(ask("a"))
    pool.finish("a", 0)
    for milliseconds in (SILENT_MS, 6_000, 86_400_000):
        pool.now_ms += milliseconds
        pool.reap_gone(DEAD)
    assert not pool.redis.keys("{m:virtual}:gateways")
