"""What /readyz, /healthz and /metrics tell, asked over ASGI as a server would."""

import json

import pytest
from control_plane.status.health import Health
from redis import Redis

from gpu_workers.protocol import functions, keys
from gpu_workers.protocol.messages import WorkerState
from inference.lua_constants import STALE_LOOP_MS
from tests.support.fleet import model_policy, write_policy, write_worker
from tests.support.signals.probes import ask

NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def health(dispatch_redis_url: str, redis_url: str) -> Health:
    return Health(dispatch_redis_url=dispatch_redis_url, redis_url=redis_url)


@pytest.mark.usefixtures("functions_loaded")
async def test_ready_means_that_a_model_would_answer(health: Health, empty_redis: Redis) -> None:
    write_policy(empty_redis, model_policy("demo"), model_policy("cold"))
    write_worker(empty_redis, "demo")
    answer = await ask(health, "/readyz")
    assert answer.status == 200
    told = json.loads(answer.body)
    assert told["parts"]["Workers"]["detail"] == "1 of 2 models have a ready worker"
    assert told["models"]["demo"] == {
        "ready_workers": 1,
        "live_workers": 1,
        "queued": 0,
        "degraded": [],
    }
    assert told["models"]["cold"]["ready_workers"] == 0


@pytest.mark.usefixtures("functions_loaded")
async def test_a_degraded_worker_is_ready_and_says_what_it_serves_otherwise(
    health: Health, empty_redis: Redis
) -> None:
    write_policy(empty_redis, model_policy("demo"))
    write_worker(empty_redis, "demo", degraded=["resumption", "chat_fast_path"])
    answer = await ask(health, "/readyz")
    assert answer.status == 200
    assert json.loads(answer.body)["models"]["demo"]["degraded"] == ["chat_fast_path", "resumption"]
    lines = (await ask(health, "/metrics")).body.splitlines()
    assert 'penstock_pool_degraded_workers{pool="demo"} 1.0' in lines


async def test_registrations_that_a_pool_refused_are_counted(
    health: Health, empty_redis: Redis
) -> None:
    write_policy(empty_redis, model_policy("demo"))
    empty_redis.hset(keys.pool_identity("demo"), "refused", 3)
    lines = (await ask(health, "/metrics")).body.splitlines()
    assert 'penstock_pool_refused_workers{pool="demo"} 3.0' in lines


@pytest.mark.usefixtures("functions_loaded")
async def test_a_busy_worker_is_live_and_not_ready(health: Health, empty_redis: Redis) -> None:
    write_policy(empty_redis, model_policy("demo"))
    write_worker(empty_redis, "demo", loop_age_ms=STALE_LOOP_MS + 1)
    told = json.loads((await ask(health, "/readyz")).body)["models"]["demo"]
    assert (told["live_workers"], told["ready_workers"]) == (1, 0)


async def test_every_reason_is_given_at_once(health: Health, empty_redis: Redis) -> None:
    answer = await ask(health, "/readyz")
    assert answer.status == 503
    assert answer.reasons == [
        "Policy snapshot: not written yet",
        f"Redis functions: missing: {functions.ADMISSION_LIBRARY}, {functions.DISPATCH_LIBRARY}",
        "Workers: no models in the catalogue",
    ]


@pytest.mark.usefixtures("functions_loaded")
async def test_a_worker_that_starts_is_live_and_not_ready(
    health: Health, empty_redis: Redis
) -> None:
    write_policy(empty_redis, model_policy("demo"))
    write_worker(empty_redis, "demo", state=WorkerState.STARTING)
    answer = await ask(health, "/readyz")
    assert answer.reasons == ["Workers: 0 of 1 models have a ready worker"]
    assert json.loads(answer.body)["models"]["demo"]["live_workers"] == 1


@pytest.mark.usefixtures("functions_loaded")
async def test_a_tenants_own_model_is_not_told_to_probes(
    health: Health, empty_redis: Redis
) -> None:
    write_policy(empty_redis, model_policy("demo"), model_policy("acme-own", tenant_ids=["acme"]))
    write_worker(empty_redis, "demo")
    assert "acme-own" not in (await ask(health, "/readyz")).body


async def test_parts_that_are_down_are_told_without_their_addresses() -> None:
    health = Health(
        dispatch_redis_url=NOWHERE,
        redis_url=NOWHERE,
        database_url="postgresql://penstock:hunter2@127.0.0.1:1/nothing",
    )
    answer = await ask(health, "/readyz")
    assert answer.status == 503
    assert [reason.split(":")[0] for reason in answer.reasons] == [
        "PostgreSQL",
        "Redis",
        "Dispatch Redis",
    ]
    assert "hunter2" not in answer.body and "127.0.0.1" not in answer.body


@pytest.mark.django_db
async def test_postgresql_is_asked_where_it_is_a_part(
    test_servers: object, dispatch_redis_url: str
) -> None:
    from django.conf import settings

    health = Health(
        dispatch_redis_url=dispatch_redis_url, database_url=settings.PENSTOCK_DATABASE_URL
    )
    answer = await ask(health, "/readyz")
    assert json.loads(answer.body)["parts"]["PostgreSQL"] == {"well": True, "detail": "reachable"}


async def test_alive_is_told_whatever_is_down() -> None:
    answer = await ask(Health(dispatch_redis_url=NOWHERE), "/healthz")
    assert (answer.status, answer.body) == (200, "")


async def test_the_parts_are_asked_once_however_many_ask(
    health: Health, empty_redis: Redis
) -> None:
    first = await health.report()
    write_policy(empty_redis, model_policy("demo"))
    assert await health.report() is first


@pytest.mark.usefixtures("functions_loaded")
async def test_metrics_hold_queues_and_workers_of_each_pool(
    health: Health, empty_redis: Redis
) -> None:
    write_policy(empty_redis, model_policy("demo"))
    write_worker(empty_redis, "demo")
    empty_redis.zadd(keys.pool_queue("demo"), {"a": 1, "b": 2})
    answer = await ask(health, "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    lines = answer.body.splitlines()
    assert 'penstock_pool_queue_length{pool="demo"} 2.0' in lines
    assert 'penstock_pool_live_workers{pool="demo"} 1.0' in lines
    assert 'penstock_pool_running_requests{pool="demo"} 3.0' in lines
    assert 'penstock_part_up{part="dispatch_redis"} 1.0' in lines
    assert "penstock_ready 1.0" in lines
    families = {line.split()[2] for line in lines if line.startswith("# TYPE penstock_")}
    assert len(families) >= 11


@pytest.mark.usefixtures("functions_loaded")
async def test_metrics_name_no_model_or_pool_that_is_not_for_everybody(
    health: Health, empty_redis: Redis
) -> None:
    write_policy(
        empty_redis,
        model_policy("demo"),
        model_policy("acme-secret", tenant_ids=["acme"]),
        model_policy("globex-secret", tenant_ids=["globex"]),
    )
    for pool in ("acme-secret", "globex-secret", "of-no-model"):
        write_worker(empty_redis, pool)
    answer = await ask(health, "/metrics")
    assert "secret" not in answer.body and "of-no-model" not in answer.body
    lines = answer.body.splitlines()
    assert 'penstock_pool_running_requests{pool="demo"} 0.0' in lines
    assert 'penstock_pool_running_requests{pool="(not public)"} 9.0' in lines
    assert 'penstock_model_ready_workers{model="(not public)"} 2.0' in lines


async def test_metrics_come_also_while_redis_is_down() -> None:
    answer = await ask(Health(dispatch_redis_url=NOWHERE), "/metrics")
    assert answer.status == 200
    assert 'penstock_part_up{part="dispatch_redis"} 0.0' in answer.body.splitlines()


@pytest.mark.usefixtures("functions_loaded")
@pytest.mark.parametrize("address", ["203.0.113.7", "2001:db8::1", "not-an-address"])
async def test_a_stranger_learns_whether_it_is_ready_and_nothing_else(
    health: Health, empty_redis: Redis, address: str
) -> None:
    write_policy(empty_redis, model_policy("demo"))
    write_worker(empty_redis, "demo")
    ready = await ask(health, "/readyz", address=address)
    assert (ready.status, json.loads(ready.body)) == (200, {"status": "ready"})
    assert (await ask(health, "/metrics", address=address, token="t" * 32)).status == 401
    seen = await ask(health, "/readyz", address=address, token="t" * 32, bearer="t" * 32)
    assert "demo" in json.loads(seen.body)["models"]
    alive = await ask(health, "/healthz", address=address)
    assert (alive.status, alive.body) == (200, "")


@pytest.mark.parametrize("path", ["/readyz", "/metrics"])
async def test_probes_are_only_read(health: Health, path: str) -> None:
    answer = await ask(health, path, method="POST")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    head = await ask(health, path, method="HEAD")
    assert head.body == "" and int(head.headers["content-length"]) > 0
