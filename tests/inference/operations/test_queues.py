"""The queues as operators see them, over the real dispatch functions."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from redis import Redis

from gpu_workers.protocol import keys
from inference.operations.queues import PoolQueue, read_queues
from tests.support.dispatch.virtual_pool import Ask, VirtualPool
from tests.support.servers import TestServers


@pytest.fixture
def pool(test_servers: TestServers) -> Iterator[VirtualPool]:
    """The pool `virtual`, in the time of Redis, with a worker of four slots."""
    with Redis.from_url(test_servers.dispatch_redis.url) as redis:
        redis.flushall()
        redis.sadd(keys.known_pools(), "virtual", "unused")
        pool = VirtualPool(redis)
        seconds, _ = cast("tuple[int, int]", redis.time())
        pool.now_ms = seconds * 1000
        pool.register("w")
        pool.claim("w", 4)
        yield pool
        redis.flushall()


def queue_of(pool: VirtualPool) -> PoolQueue:
    (queue,) = read_queues(pool.redis)
    return queue


def ask(number: int, tenant: str = "acme", **fields: Any) -> Ask:
    return Ask(request_id=f"r{number}", tenant=tenant, **fields)


def test_an_idle_pool_has_slots_and_no_wait(pool: VirtualPool) -> None:
    queue = queue_of(pool)
    assert (queue.queued, queue.slots, queue.free, queue.oldest_ms) == (0, 4, 4, None)
    assert [each.wait_ms for each in queue.classes] == [0] * 4
    assert queue.flows == ()


def test_what_waits_is_told_by_class_with_its_oldest(pool: VirtualPool) -> None:
    began_ms = pool.now_ms - 60_000
    pool.now_ms = began_ms
    pool.claim("w", 4)
    for number in range(6):
        pool.enqueue(ask(number))
        pool.now_ms += 1_000
    for number in range(6, 9):
        pool.enqueue(ask(number, "globex", service_class="batch"))
    queue = queue_of(pool)
    by_class = {each.name: (each.waiting, each.running) for each in queue.classes}
    running = sum(each for _, each in by_class.values())
    assert queue.queued == 9 - running == sum(each for each, _ in by_class.values())
    assert by_class["batch"] == (3, 0)
    waiting = [f"r{n}" for n in range(9) if pool.redis.zscore(keys.pool_queue("virtual"), f"r{n}")]
    arrived_ms = pool.redis.zscore(keys.pool_open_requests("virtual"), waiting[0])
    assert queue.oldest_ms is not None
    assert arrived_ms is not None
    seconds, _ = pool.redis.time()
    assert abs(queue.oldest_ms - (seconds * 1000 - arrived_ms)) < 2_000


def test_the_expected_wait_is_what_a_tenant_would_be_told(pool: VirtualPool) -> None:
    for number in range(4):
        pool.enqueue(ask(number))
    assert queue_of(pool).classes[0].wait_ms is None, "nothing has ended yet"
    pool.now_ms += 2_000
    pool.finish("r0", 1, prompt=10, output=10)
    for number in range(4, 10):
        pool.enqueue(ask(number))
    told = pool.outlook("-")[1]
    assert told > 0
    assert queue_of(pool).classes[0].wait_ms == told


def test_shares_are_by_weight_of_tenant_and_class_and_held_by_what_runs(
    pool: VirtualPool,
) -> None:
    pool.enqueue(ask(1, "acme", weight=3))
    pool.enqueue(ask(2, "globex", weight=1))
    flows = {flow.tenant_id: flow for flow in queue_of(pool).flows}
    assert (flows["acme"].share, flows["globex"].share) == (0.75, 0.25)
    assert (flows["acme"].held, flows["globex"].held) == (0.5, 0.5)
    assert (flows["acme"].running, flows["acme"].waiting) == (1, 0)


def test_a_pool_that_nobody_serves_or_uses_is_left_out(pool: VirtualPool) -> None:
    assert [queue.name for queue in read_queues(pool.redis)] == ["virtual"]
