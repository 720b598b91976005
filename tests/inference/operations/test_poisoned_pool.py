"""What a leaked password of one pool's workers can write keeps nobody from the other pools.

Workers may write whatever is below their pool's prefix. In one pool of two all of it is something
else than it should be: keys of the wrong type, or of the right one with what nobody can read.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from control_plane.status.health import Health
from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.exceptions import ResponseError

from gpu_workers.protocol import keys
from inference.adapters.observed import note_what_workers_say
from inference.adapters.pins import pin_problems
from inference.dispatch.abandoned import end_abandoned
from inference.dispatch.worker_registry import WorkerRegistry
from inference.models import Pool, UsageRecord
from inference.operations import dead_letters
from inference.operations.checks import open_request_problems
from inference.operations.drain import find_worker
from inference.operations.fleet import UNREADABLE_POOL, read_fleet
from inference.operations.pool_identity import copy_identities
from inference.operations.queues import read_queues
from inference.operations.resync import resync_lost_redis
from inference.pools import alone, known_pools
from inference.usage.collector import UsageCollector
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey
from tests.support.fleet import model_policy, write_policy, write_worker
from tests.support.projects import make_key
from tests.support.usage_entries import append, usage_entry

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("operators_session"),
]
# By name, the poisoned one comes first.
POISONED, WELL = "a-poisoned", "b-well"
_OTHER_TYPE = b"\xff of another type"


def of_another_type(redis: Redis) -> None:
    for key in _keys_of_a_pool():
        redis.delete(key)
        redis.set(key, _OTHER_TYPE)


def of_another_language(redis: Redis) -> None:
    """Hashes, sets and streams as they should be, with names and values that mean nothing."""
    for key in (
        *(keys.pool_workers(POISONED), keys.pool_identity(POISONED), keys.pool_loads(POISONED)),
        *(keys.pool_scheduler(POISONED), keys.pool_adapter_effects(POISONED)),
    ):
        redis.hset(key, mapping={b"\xff": b"\xff", "heard": "soon", "slots": "many"})
    for key in (
        *(keys.pool_heartbeats(POISONED), keys.pool_gateways(POISONED)),
        *(keys.pool_open_requests(POISONED), keys.pool_queue(POISONED)),
        *(keys.pool_active_flows(POISONED), keys.pool_slots(POISONED)),
    ):
        redis.zadd(key, {b"\xff": 1, b"-": "-inf", b"+": "inf"})
    redis.sadd(keys.pool_workers_resynced(POISONED), b"\xff")
    for key in (keys.pool_dead_letters(POISONED), keys.pool_usage(POISONED)):
        redis.xadd(key, {b"\xff": b"\xff"})


def _keys_of_a_pool() -> list[str]:
    functions = (each for _, each in inspect.getmembers(keys, inspect.isfunction))
    return [
        function(POISONED)
        for function in functions
        if list(inspect.signature(function).parameters) == ["pool"]
    ]


@pytest.fixture
def api_key(operators_session: None) -> ApiKey:
    return make_key("Acme")


@pytest.fixture(params=[of_another_type, of_another_language])
def redis(
    request: pytest.FixtureRequest, dispatch_redis_url: str, api_key: ApiKey
) -> Iterator[Redis]:
    with Redis.from_url(dispatch_redis_url) as redis:
        redis.flushdb()
        for name in (POISONED, WELL):
            Pool.objects.create(name=name)
        redis.sadd(keys.known_pools(), POISONED, WELL)
        write_policy(redis, model_policy(POISONED), model_policy(WELL))
        write_worker(redis, WELL, name="well")
        request.param(redis)
        yield redis
        redis.flushdb()


def asynchronously(url: str, work: Callable[[AsyncRedis], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with AsyncRedis.from_url(url) as client:
            return await work(client)

    return asyncio.run(run())


def test_usage_of_other_pools_is_collected(redis: Redis, api_key: ApiKey) -> None:
    append(redis, usage_entry(api_key, pool=WELL), pool=WELL)
    collector = UsageCollector(redis)
    assert collector.has_backlog()
    collector.drain()
    assert UsageRecord.objects.filter(pool=WELL).count() == 1
    append(redis, usage_entry(api_key, pool=WELL), pool=WELL)
    collector.drain()
    assert UsageRecord.objects.filter(pool=WELL).count() == 2
    # Where nobody knows what it holds, nothing that was spent is given back.
    is_readable = redis.type(keys.pool_usage(POISONED)) == b"stream"
    assert collector.has_ingested(within_seconds=1) is is_readable


def test_a_redis_that_was_lost_is_filled_again(redis: Redis) -> None:
    resync_lost_redis(redis)


def test_operators_see_the_others_and_which_one_it_is(redis: Redis) -> None:
    fleet = {pool.name: pool for pool in read_fleet(redis)}
    assert [worker.info.name for worker in fleet[WELL].workers] == ["well"]
    assert fleet[WELL].problem == ""
    assert fleet[POISONED].problem == UNREADABLE_POOL
    assert POISONED not in {queue.name for queue in read_queues(redis)}
    assert dead_letters.kept_letters(redis) == []
    dead_letters.forget_old(redis)
    with operator_scope("test"):
        assert [POISONED in problem for problem in open_request_problems()] == [True]


def test_what_runs_in_the_background_reaches_the_others(
    redis: Redis, dispatch_redis_url: str
) -> None:
    assert asynchronously(dispatch_redis_url, end_abandoned) == 0
    assert note_what_workers_say(redis) == 0
    with operator_scope("test"):
        copy_identities(redis)
        list(pin_problems(redis))


def test_readiness_is_told_by_pool(redis: Redis, dispatch_redis_url: str) -> None:
    report = asyncio.run(Health(dispatch_redis_url=dispatch_redis_url).report())
    parts = {part.name: part for part in report.parts}
    assert parts["Dispatch Redis"].is_well
    assert parts["Workers"].detail == "1 of 2 models have a ready worker"
    served = {model.policy.name: model.is_served for model in report.models}
    assert served == {POISONED: False, WELL: True}


@pytest.mark.usefixtures("redis")
def test_a_gateway_finds_nobody_there_and_the_others_as_ever(dispatch_redis_url: str) -> None:
    async def workers(client: AsyncRedis) -> tuple[int, int]:
        registry = WorkerRegistry(client)
        return len(await registry.workers(POISONED)), len(await registry.workers(WELL))

    assert asynchronously(dispatch_redis_url, workers) == (0, 1)


def test_a_worker_of_another_pool_is_found_to_be_drained(redis: Redis) -> None:
    assert find_worker(redis, "well").pool == WELL


def test_what_is_wrong_with_redis_itself_is_not_taken_for_a_pools(redis: Redis) -> None:
    with pytest.raises(ResponseError), alone(WELL):
        raise ResponseError("OOM command not allowed when used memory > 'maxmemory'.")
    assert known_pools(redis) == [POISONED, WELL]
