"""Operators drain a worker."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.admin.utils import quote
from django.test import Client
from django.urls import reverse
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import WorkerState
from inference.models import Worker
from tenants.audit.log import seal_now
from tenants.isolation.scoping import operator_scope
from tenants.models import AuditEvent
from tests.control_plane.operator_site.records import refusals, somebody_who_may
from tests.support.fleet import worker_info, write_worker

pytestmark = pytest.mark.django_db
# Both characters stand otherwise in the addresses of the admin.
WORKER_ID = "gpu_1#aa"
INBOX = keys.pool_inbox("fleet-tests", WORKER_ID)


@pytest.fixture
def redis(settings: Any, dispatch_redis_url: str, functions_loaded: None) -> Iterator[Redis]:
    settings.PENSTOCK_DISPATCH_REDIS_URL = dispatch_redis_url
    with Redis.from_url(dispatch_redis_url) as redis:
        write_worker(redis, "fleet-tests", worker_id=WORKER_ID, name="gpu_1")
        with operator_scope("test"):
            Worker.objects.sync([worker_info(worker_id=WORKER_ID, name="gpu_1")])
        yield redis


@pytest.fixture
def page() -> str:
    return reverse("admin:inference_worker_drain_one", args=[quote(WORKER_ID)])


def test_a_worker_is_drained_after_a_question_and_that_is_on_record(
    operator: Client, redis: Redis, page: str
) -> None:
    its_own = reverse("admin:inference_worker_change", args=[quote(WORKER_ID)])
    assert page.encode() in operator.get(its_own).content
    assert b"Drain gpu_1" in operator.get(page).content
    assert redis.lrange(INBOX, 0, -1) == []
    assert operator.post(page, {"sure": "yes"})["Location"] == its_own
    assert redis.lrange(INBOX, 0, -1) == [b"drain\n"]
    with operator_scope("test"):
        seal_now()
        event = AuditEvent.objects.get(verb="drained")
    assert (event.record_id, event.actor_kind) == (WORKER_ID, "user")


def test_who_may_only_look_may_not_drain(client: Client, redis: Redis, page: str) -> None:
    client.force_login(somebody_who_may("view_worker"))
    assert client.post(page, {"sure": "yes"}).status_code in (302, 403)
    assert redis.lrange(INBOX, 0, -1) == []


def test_a_worker_that_is_gone_cannot_be_drained(operator: Client, redis: Redis, page: str) -> None:
    redis.zadd(keys.pool_heartbeats("fleet-tests"), {WORKER_ID: 1})
    answer = operator.post(page, {"sure": "yes"}, follow=True)
    assert refusals(answer) == ["The worker gpu_1#aa is not running."]


def test_a_redis_that_is_away_is_one_sentence(
    operator: Client, redis: Redis, page: str, settings: Any
) -> None:
    settings.PENSTOCK_DISPATCH_REDIS_URL = "redis://127.0.0.1:1"
    answer = operator.post(page, {"sure": "yes"}, follow=True)
    assert refusals(answer) == ["The dispatch Redis is not reachable; try again later."]


def test_a_worker_that_stays_is_drained_and_resumed_from_its_page(
    operator: Client, redis: Redis, page: str
) -> None:
    its_own = reverse("admin:inference_worker_change", args=[quote(WORKER_ID)])
    resume = reverse("admin:inference_worker_resume_one", args=[quote(WORKER_ID)])
    assert resume.encode() not in operator.get(its_own).content
    operator.post(page, {"sure": "yes", "stays": "on"})
    assert redis.lrange(INBOX, 0, -1) == [b"drain stay\n"]
    held: dict[str, Any] = {"name": "gpu_1", "state": WorkerState.DRAINED, "stays": True}
    write_worker(redis, "fleet-tests", worker_id=WORKER_ID, **held)
    with operator_scope("test"):
        Worker.objects.sync([worker_info(worker_id=WORKER_ID, **held)])
    shown = operator.get(its_own).content
    assert resume.encode() in shown and page.encode() in shown
    assert b"takes requests again, at once" in operator.get(resume).content
    assert redis.lrange(INBOX, 0, -1) == [b"drain stay\n"]
    operator.post(resume, {"sure": "yes"})
    assert redis.lrange(INBOX, 0, -1) == [b"resume\n"]
    with operator_scope("test"):
        seal_now()
        assert AuditEvent.objects.get(verb="resumed").record_id == WORKER_ID


def test_a_worker_that_nobody_holds_is_not_resumed(operator: Client, redis: Redis) -> None:
    resume = reverse("admin:inference_worker_resume_one", args=[quote(WORKER_ID)])
    answer = operator.post(resume, {"sure": "yes"}, follow=True)
    assert "there is nothing to resume" in refusals(answer)[0]
    assert redis.lrange(INBOX, 0, -1) == []
