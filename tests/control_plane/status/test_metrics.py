"""Who sees what on /metrics: a scraper with the operator's token everything, anybody else sums."""

import asyncio
import json
from functools import partial

import pytest
from celery.signals import task_success
from control_plane.celery import BEAT_INTERVALS, app
from control_plane.status import background
from control_plane.status.background import Figures
from control_plane.status.health import Health
from control_plane.status.tasks import count_for_metrics
from django.conf import settings
from msgspec import structs
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Api, Outcome
from inference.lifecycle.signals import metrics
from inference.models import UsageQuarantine
from tenants.isolation.scoping import operator_scope
from tests.support.fleet import model_policy, write_policy, write_worker
from tests.support.gateways.cast import an_envelope
from tests.support.signals.probes import ask

TOKEN = "the-token-of-the-operator's-prometheus"


@pytest.fixture
def health(dispatch_redis_url: str, redis_url: str) -> Health:
    return Health(
        dispatch_redis_url=dispatch_redis_url,
        redis_url=redis_url,
        background=partial(background.look, intervals=BEAT_INTERVALS),
    )


@pytest.fixture
def acmes_own(empty_redis: Redis) -> str:
    """A model that only Acme may know of, with a pool and traffic of its own."""
    write_policy(empty_redis, model_policy("demo"), model_policy("acme-own", tenant_ids=["acme"]))
    write_worker(empty_redis, "demo")
    write_worker(empty_redis, "acme-own")
    for model in ("demo", "acme-own"):
        envelope = structs.replace(an_envelope(pool=model), model=model, tier="acme-gold")
        metrics.admitted(envelope)
        metrics.ended(envelope, Outcome.COMPLETED, 1.5)
    return "acme-own"


@pytest.mark.usefixtures("functions_loaded")
async def test_whoever_has_no_token_reads_sums_of_what_is_not_public(
    health: Health, acmes_own: str
) -> None:
    answer = await ask(health, "/metrics", token=TOKEN)
    assert acmes_own not in answer.body and "acme-gold" not in answer.body
    for model in ("demo", "(not public)"):
        line = f'penstock_gateway_admitted_total{{api="{Api.CHAT_COMPLETIONS}",'
        line += f'class="interactive",model="{model}",tier="(all)"}}'
        assert line in answer.body


@pytest.mark.usefixtures("functions_loaded")
async def test_the_sums_that_strangers_read_are_those_of_the_named_series(
    health: Health, acmes_own: str
) -> None:
    def total(body: str, family: str) -> float:
        lines = [line for line in body.splitlines() if line.startswith(family)]
        assert lines
        return sum(float(line.rpartition(" ")[2]) for line in lines)

    named = (await ask(health, "/metrics", bearer=TOKEN, token=TOKEN)).body
    summed = (await ask(health, "/metrics", token=TOKEN)).body
    for family in ("penstock_gateway_admitted_total", "penstock_gateway_end_to_end_seconds_bucket"):
        assert total(named, family) == total(summed, family)


@pytest.mark.usefixtures("functions_loaded")
async def test_the_token_shows_every_model_and_pool(health: Health, acmes_own: str) -> None:
    body = (await ask(health, "/metrics", bearer=TOKEN, token=TOKEN)).body
    assert f'penstock_pool_ready_workers{{pool="{acmes_own}"}} 1.0' in body.splitlines()
    assert f'model="{acmes_own}",tier="acme-gold"' in body and "(not public)" not in body


@pytest.mark.parametrize("path", ["/metrics", "/metrics/targets"])
@pytest.mark.parametrize("token", ["", TOKEN])
@pytest.mark.parametrize("bearer", ["", "another", TOKEN[:-1]])
async def test_a_wrong_token_is_refused_rather_than_shown_less(
    health: Health, path: str, token: str, bearer: str
) -> None:
    answer = await ask(health, path, bearer=bearer, token=token)
    assert (answer.status, answer.headers["www-authenticate"]) == (401, "Bearer")


async def test_the_workers_addresses_are_for_the_token_alone(health: Health) -> None:
    assert (await ask(health, "/metrics/targets", token=TOKEN)).status == 401
    assert (await ask(health, "/metrics/targets")).status == 401


@pytest.mark.usefixtures("functions_loaded")
async def test_targets_are_the_live_workers_that_have_metrics(
    health: Health, empty_redis: Redis
) -> None:
    write_policy(empty_redis, model_policy("demo"))
    for number, url in enumerate(("http://node-1:9101/metrics", "", "ftp://node/", "http://[")):
        write_worker(empty_redis, f"pool-{number}", metrics_url=url)
    write_worker(empty_redis, "of-a-dead-one", metrics_url="http://node-2:9101/metrics")
    empty_redis.zadd(keys.pool_heartbeats("of-a-dead-one"), {"of-a-dead-one-worker#1": 1})
    answer = await ask(health, "/metrics/targets", bearer=TOKEN, token=TOKEN)
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.body) == [
        {
            "targets": ["node-1:9101"],
            "labels": {
                "__metrics_path__": "/metrics",
                "pool": "pool-0",
                "worker": "pool-0-worker",
                "host": "node-of-the-operator",
            },
        }
    ]


@pytest.mark.usefixtures("functions_loaded")
async def test_usage_that_nobody_collects_shows_its_age(health: Health, empty_redis: Redis) -> None:
    write_policy(empty_redis, model_policy("demo"))
    now_seconds, _ = empty_redis.time()
    empty_redis.xadd(keys.pool_usage("demo"), {"record": b""}, id=f"{(now_seconds - 90) * 1000}-0")
    lines = (await ask(health, "/metrics")).body.splitlines()
    name = 'penstock_pool_oldest_unrecorded_usage_seconds{pool="demo"}'
    (age,) = [float(line.split()[-1]) for line in lines if line.startswith(name)]
    assert 90 <= age < 120


@pytest.mark.usefixtures("functions_loaded", "empty_redis")
async def test_what_celery_does_is_told(health: Health, redis_url: str) -> None:
    with Redis.from_url(redis_url) as redis:
        redis.rpush("celery:webhooks", "a task", "another")
        try:
            background.note_success(redis, "inference.sync_adapters")
            body = (await ask(health, "/metrics")).body
        finally:
            redis.delete("celery:webhooks", "beat:successes")
    assert 'penstock_celery_queued_tasks{queue="webhooks"} 2.0' in body
    assert 'last_success_timestamp_seconds{task="inference.sync_adapters"}' in body
    assert 'last_success_timestamp_seconds{task="inference.copy_workers"}' not in body
    assert 'penstock_beat_task_interval_seconds{task="tenants.check_everything"} 86400.0' in body
    assert 'task_interval_seconds{task="inference.forget_idempotent_calls"} 3600.0' in body


@pytest.mark.usefixtures("functions_loaded", "empty_redis")
async def test_costs_of_a_pool_are_named_to_the_token_alone(
    health: Health, redis_url: str, acmes_own: str
) -> None:
    figures = Figures(
        webhooks_waiting=3,
        webhooks_oldest_due_seconds=61.5,
        emails_waiting=1,
        worker_hour_nanos={acmes_own: 5_000_000_000},
        payment_events_unresolved=2,
        quarantined={"unproven": 2},
    )
    with Redis.from_url(redis_url) as redis:
        background.note_figures(redis, figures)
        background.note_fsck(redis, 3, 61.5)
        try:
            body = (await ask(health, "/metrics", bearer=TOKEN, token=TOKEN)).body
            public = await Health(
                dispatch_redis_url=settings.PENSTOCK_DISPATCH_REDIS_URL,
                redis_url=redis_url,
                background=partial(background.look, intervals=BEAT_INTERVALS),
            ).report()
        finally:
            redis.delete("background:figures", "fsck:result")
    assert "penstock_fsck_problems 3.0" in body
    assert "penstock_fsck_duration_seconds 61.5" in body
    assert "penstock_fsck_last_end_timestamp_seconds" in body
    assert f'worker_cost_dollars_per_hour{{pool="{acmes_own}"}} 5.0' in body
    assert "penstock_webhook_oldest_due_seconds 61.5" in body
    assert "penstock_payment_events_unresolved 2.0" in body
    assert 'penstock_usage_quarantined_entries{cause="unproven"} 2.0' in body
    assert public.background is not None and public.background.figures == figures


def test_the_success_of_a_beat_task_is_noted_and_of_no_other(redis_url: str) -> None:
    app.loader.import_default_modules()
    with Redis.from_url(redis_url) as redis:
        redis.delete("beat:successes")
        for name in ("inference.copy_workers", "inference.retry_dead_letter"):
            task_success.send(sender=app.tasks[name], result=None)
        assert set(redis.hkeys("beat:successes")) == {b"since", b"inference.copy_workers"}
        assert redis.ttl("beat:successes") > 0
        redis.delete("beat:successes")


def test_every_beat_task_has_an_interval() -> None:
    assert all(interval > 0 for interval in BEAT_INTERVALS.values())
    assert BEAT_INTERVALS["control_plane.count_for_metrics"] == 15
    app.loader.import_default_modules()
    assert set(BEAT_INTERVALS) <= set(app.tasks), "Celery knows them all"


@pytest.mark.django_db
def test_usage_in_quarantine_is_counted_by_its_cause(redis_url: str) -> None:
    with operator_scope("test"):
        for number, cause in enumerate(("unproven", "unproven", "repeated")):
            UsageQuarantine.objects.create(
                pool="p", stream_id=f"{number}-1", entry=b"", reason="a reason", cause=cause
            )
    with Redis.from_url(redis_url) as redis:
        count_for_metrics()
        found = asyncio.run(_look(redis_url))
        redis.delete("background:figures")
    assert found.figures is not None
    assert found.figures.quarantined == {
        "invalid": 0, "unproven": 2, "beyond_reservation": 0, "prices": 0, "repeated": 1
    }  # fmt: skip


async def _look(redis_url: str) -> background.Background:
    async with AsyncRedis.from_url(redis_url) as redis:
        return await background.look(redis, BEAT_INTERVALS)


@pytest.mark.django_db
def test_celery_counts_what_waits_in_postgresql(redis_url: str) -> None:
    with Redis.from_url(redis_url) as redis:
        assert count_for_metrics() == 0
        assert 0 < redis.ttl("background:figures") <= 300
        redis.delete("background:figures")
