"""Operators see what a pool serves and whom it refused, and let another model in."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from redis import Redis
from redis.exceptions import ResponseError

from inference import tasks
from inference.models import Pool
from tenants.isolation.scoping import operator_scope
from tests.support.commands import run
from tests.support.fleet import empty_with_functions, join

pytestmark = pytest.mark.django_db
POOL = "demo"
DIGEST = f"sha256:{'1' * 32}"


@pytest.fixture
def redis(settings: Any, dispatch_redis_url: str) -> Iterator[Redis]:
    settings.PENSTOCK_DISPATCH_REDIS_URL = dispatch_redis_url
    with Redis.from_url(dispatch_redis_url) as redis:
        empty_with_functions(redis)
        with operator_scope("test"):
            Pool.objects.create(name=POOL)
        yield redis
        redis.flushall()


def on_record() -> tuple[str, str]:
    with operator_scope("test"):
        pool = Pool.objects.get(name=POOL)
    return pool.engine, pool.model_digest


def test_the_admin_asks_before_the_next_worker_decides(operator: Client, redis: Redis) -> None:
    join(redis, POOL)
    tasks.copy_workers()
    page = reverse("admin:inference_pool_unpin", args=[POOL])
    assert DIGEST in operator.get(page).content.decode()
    assert on_record() == ("vllm", DIGEST)
    operator.post(page, {"sure": "yes"})
    assert on_record() == ("", "")
    join(redis, POOL, "another", digest=f"sha256:{'2' * 32}")


def test_the_fleet_page_and_the_list_of_concerns_name_a_worker_that_was_refused(
    operator: Client, redis: Redis
) -> None:
    join(redis, POOL)
    with pytest.raises(ResponseError):
        join(redis, POOL, "another", engine="sim", digest="")
    fleet = operator.get(reverse("admin:dashboard-fleet")).content.decode()
    assert "serves vllm 111111111111" in fleet
    assert "1 registrations refused; the last, of another with sim" in fleet
    concerns = operator.get(reverse("admin:index")).content.decode()
    assert "Pool demo refused worker another: it brings sim" in concerns


def test_a_worker_that_runs_and_serves_something_else_is_named(
    operator: Client, redis: Redis
) -> None:
    join(redis, POOL, "stand-in", engine="sim", digest="")
    run("pin_pool", POOL, "--engine", "vllm", "--digest", DIGEST)
    fleet = operator.get(reverse("admin:dashboard-fleet")).content.decode()
    assert "it serves sim, which is not what the pool serves" in fleet
    concerns = operator.get(reverse("admin:index")).content.decode()
    assert "Worker stand-in of pool demo serves sim, and the pool vllm 111111111111" in concerns
