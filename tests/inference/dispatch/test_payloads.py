"""The bytes of requests that a pool holds are bounded, for all and for each tenant."""

from collections.abc import Iterator

import pytest
from redis import Redis

from gpu_workers.protocol import keys
from tests.support.dispatch.virtual_pool import Ask, VirtualPool
from tests.support.servers import TestServers

WORKER = "worker#1"
MOST = 1_000


@pytest.fixture
def pool(test_servers: TestServers) -> Iterator[VirtualPool]:
    with Redis.from_url(test_servers.dispatch_redis.url, socket_timeout=None) as redis:
        redis.flushall()
        pool = VirtualPool(redis)
        pool.max_payload_bytes = MOST
        yield pool


def held(pool: VirtualPool, tenant: str = "") -> int:
    """Bytes, of the pool or of a tenant's flow."""
    if tenant:
        key = keys.pool_flow(pool.name, "interactive", tenant)
        return int(pool.numbers(key).get("payload", 0))
    return int(pool.scheduler().get("payload", 0))


def fill(pool: VirtualPool, tenants: int, *, each: int = 200) -> None:
    for number in range(tenants):
        ask = Ask(request_id=f"of-{number}", tenant=f"tenant-{number}", payload=each)
        assert pool.enqueue(ask) == "queued"


def test_payloads_count_while_they_wait_and_run_and_no_longer(pool: VirtualPool) -> None:
    pool.enqueue(Ask(request_id="a", tenant="acme", payload=100))
    pool.enqueue(Ask(request_id="b", tenant="acme", payload=50))
    assert (held(pool), held(pool, "acme")) == (150, 150)
    pool.register(WORKER)
    pool.claim(WORKER, 1)
    assert held(pool) == 150
    assert pool.finish("a", 1)
    assert (held(pool), held(pool, "acme")) == (50, 50)
    pool.cancel("b")
    assert held(pool) == 50, "until somebody ends it"
    assert pool.finish("b", 1)
    assert (held(pool), held(pool, "acme")) == (0, 0)


def test_an_attempt_that_goes_on_from_more_counts_what_it_holds(pool: VirtualPool) -> None:
    pool.register(WORKER)
    pool.claim(WORKER, 1)
    pool.enqueue(Ask(request_id="a", tenant="acme", payload=100))
    pool.requeue("a", 1, "preempted", b"." * 130, 10)
    assert (held(pool), held(pool, "acme")) == (130, 130)
    assert pool.finish("a", 2)
    assert held(pool) == 0


def test_what_a_worker_takes_back_is_counted_again(pool: VirtualPool) -> None:
    ask = Ask(request_id="a", tenant="acme", payload=100)
    pool.register(WORKER)
    assert pool.adopt(WORKER, [(ask, 1)]) == []
    assert held(pool) == 100
    assert pool.finish("a", 1)
    assert held(pool) == 0


def test_a_tenant_has_a_quarter_at_most_and_is_told_its_own_share(pool: VirtualPool) -> None:
    assert pool.enqueue(Ask(request_id="a", tenant="acme", payload=200)) == "queued"
    answer = pool.ask(Ask(request_id="b", tenant="acme", payload=51))
    assert answer == [b"share_full", 200, 250]
    assert pool.enqueue(Ask(request_id="c", tenant="globex", payload=51)) == "queued"
    assert held(pool) == 251


def test_the_first_request_of_a_tenant_is_taken_however_large(pool: VirtualPool) -> None:
    assert pool.enqueue(Ask(request_id="a", tenant="acme", payload=600)) == "queued"


def test_who_has_its_share_is_refused_while_others_still_have_room(pool: VirtualPool) -> None:
    fill(pool, 8, each=50)
    assert pool.enqueue(Ask(request_id="a", tenant="tenant-0", payload=80)) == "queued"
    # Half of it is held: from now on nobody has more than an eighth.
    assert pool.ask(Ask(request_id="b", tenant="tenant-0", payload=30))[0] == b"memory_full"
    assert pool.enqueue(Ask(request_id="c", tenant="tenant-1", payload=30)) == "queued"
    assert pool.enqueue(Ask(request_id="d", tenant="newcomer", payload=200)) == "queued"


def test_nobody_is_taken_beyond_the_cap_even_where_a_worker_is_free(pool: VirtualPool) -> None:
    pool.register(WORKER)
    pool.claim(WORKER, 16)
    for number in range(5):
        ask = Ask(request_id=f"of-{number}", tenant=f"tenant-{number}", payload=200)
        assert pool.enqueue(ask) == "assigned"
    answer = pool.ask(Ask(request_id="one more", tenant="newcomer", payload=1))
    assert answer[:2] == [b"memory_full", 1000]
    pool.finish("of-0", 1)
    assert pool.enqueue(Ask(request_id="one more", tenant="newcomer", payload=1)) == "assigned"


def test_a_refusal_leaves_nothing_that_lasts(pool: VirtualPool) -> None:
    fill(pool, 5)
    assert pool.ask(Ask(request_id="b", tenant="refused", payload=9))[0] == b"memory_full"
    assert not pool.redis.exists(keys.pool_request(pool.name, "b"))
    assert pool.redis.ttl(keys.pool_flow(pool.name, "interactive", "refused")) > 0
