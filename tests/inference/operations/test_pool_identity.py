"""What a pool serves is on record, outlives Redis, and is changed by an operator alone."""

from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from inference import tasks
from inference.models import Pool
from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent
from tests.support.commands import refused, run
from tests.support.fleet import empty_with_functions, join

pytestmark = pytest.mark.django_db
POOL = "demo"

ONE, OTHER = (f"sha256:{digit * 32}" for digit in "12")


@pytest.fixture
def redis(settings: Any, dispatch_redis_url: str) -> Iterator[Redis]:
    settings.PENSTOCK_DISPATCH_REDIS_URL = dispatch_redis_url
    with Redis.from_url(dispatch_redis_url) as redis:
        empty_with_functions(redis)
        with operator_scope("test"):
            Pool.objects.create(name=POOL)
        yield redis
        redis.flushall()


def is_refused(redis: Redis, **worker: str) -> bool:
    try:
        join(redis, POOL, "another", **worker)
    except ResponseError:
        return True
    return False


def on_record() -> tuple[str, str]:
    with operator_scope("test"):
        pool = Pool.objects.get(name=POOL)
    return pool.engine, pool.model_digest


def test_what_the_first_worker_brings_is_on_record_and_a_lost_redis_gets_it_back(
    redis: Redis,
) -> None:
    join(redis, POOL)
    tasks.copy_workers()
    assert on_record() == ("vllm", ONE)
    empty_with_functions(redis)
    tasks.copy_workers()
    assert is_refused(redis, engine="sim", digest="")
    assert not is_refused(redis)


def test_whoever_came_first_to_an_empty_redis_changes_nothing_on_record(redis: Redis) -> None:
    join(redis, POOL)
    tasks.copy_workers()
    empty_with_functions(redis)
    join(redis, POOL, "stand-in", engine="sim", digest="")
    tasks.copy_workers()
    assert on_record() == ("vllm", ONE)
    assert is_refused(redis, engine="sim", digest="")
    assert not is_refused(redis)


def test_a_digest_that_the_first_worker_did_not_tell_is_added(redis: Redis) -> None:
    join(redis, POOL, digest="")
    tasks.copy_workers()
    assert on_record() == ("vllm", "")
    join(redis, POOL, "gpu-2")
    tasks.copy_workers()
    assert on_record() == ("vllm", ONE)


def test_an_operator_lets_the_next_worker_decide_and_that_is_in_the_audit_log(
    redis: Redis,
) -> None:
    join(redis, POOL)
    tasks.copy_workers()
    assert is_refused(redis, digest=OTHER)
    assert run("pin_pool", POOL) == {
        "pool": POOL, "engine": "vllm", "model_digest": ONE, "refused_workers": 1
    }  # fmt: skip
    run("pin_pool", POOL, "--next")
    assert on_record() == ("", "")
    tasks.copy_workers()
    assert not is_refused(redis, digest=OTHER)
    tasks.copy_workers()
    assert on_record() == ("vllm", OTHER)
    with operator_scope("test"):
        seal_now()
        assert AuditEvent.objects.filter(verb="unpinned", record_id=POOL).exists()


def test_an_operator_names_what_a_pool_is_to_serve(redis: Redis) -> None:
    run("pin_pool", POOL, "--engine", "vllm", "--digest", OTHER)
    assert is_refused(redis, digest=ONE)
    assert not is_refused(redis, digest=OTHER)
    assert refused("pin_pool", "nothing", "--next") == "No pool named 'nothing'."
    assert "--engine" in refused("pin_pool", POOL, "--digest", ONE)
