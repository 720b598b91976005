"""What needs attention: all that does, and plainly when nothing does."""

import html
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from celery.signals import task_success
from control_plane.celery import BEAT_INTERVALS, app
from control_plane.live.panels import Reading
from control_plane.operator_site.dashboards.attention.affairs import failed_deliveries
from control_plane.operator_site.dashboards.attention.page import summary
from control_plane.operator_site.dashboards.attention.service import PEAK_REFUSALS
from control_plane.status import background
from control_plane.status.background import BeatTask
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from redis import Redis

from gpu_workers.protocol import keys
from inference.models import DeadLetter, PoolUsage, UsageQuarantine, Worker
from inference.models.refusal import RefusalRollup
from inference.models.usage import QuarantineCause
from inference.usage.rollups import Use, add_to_rollups
from tenants.access.api_keys import issue_api_key
from tenants.billing.invoicing.drafts import draft_invoice
from tenants.billing.ledger import credit
from tenants.billing.models import Invoice, ProviderEvent, Seller
from tenants.isolation.scoping import operator_scope
from tenants.models import Project
from tenants.offboarding.closing import close_tenant
from tenants.webhooks.endpoints import add_endpoint
from tenants.webhooks.models import Delivery, Endpoint, Event
from tenants.webhooks.problems import Problem
from tests.control_plane.operator_site.records import somebody_who_may
from tests.support.billing.billed_usage import DEAR, OCTOBER, use
from tests.support.dispatch.virtual_pool import Ask, VirtualPool
from tests.support.fleet import worker_info
from tests.support.projects import make_project

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


@pytest.fixture
def redis(settings: Any, dispatch_redis_url: str) -> Iterator[Redis]:
    settings.PENSTOCK_DISPATCH_REDIS_URL = dispatch_redis_url
    with Redis.from_url(dispatch_redis_url) as redis:
        redis.flushall()
        yield redis
        redis.flushall()


@pytest.fixture
def other_redis(redis_url: str) -> Iterator[Redis]:
    """All tasks of the beat have just succeeded, and fsck has found nothing."""
    with Redis.from_url(redis_url) as other:
        for name in BEAT_INTERVALS:
            background.note_success(other, name)
        background.note_fsck(other, 0, 1.0)
        yield other
        other.delete("beat:successes", "fsck:result")


def page_text(client: Client) -> str:
    answer = client.get(reverse("admin:index"))
    assert answer.status_code == 200
    text = re.sub("<[^>]*>", " ", answer.content.decode())
    return " ".join(html.unescape(text).split())


def test_it_says_plainly_that_nothing_does(
    operator: Client, redis: Redis, other_redis: Redis, acme: Project
) -> None:
    text = page_text(operator)
    assert "Nothing needs attention." in text
    assert "problem" not in text and "warning" not in text


def test_everything_that_does_stands_there_with_what_to_do(
    operator: Client, redis: Redis, other_redis: Redis, acme: Project
) -> None:
    now = timezone.now()
    hour = now.replace(minute=0, second=0, microsecond=0)
    with operator_scope("test"):
        lost = worker_info(worker_id="a#1", name="gpu-lost")
        Worker.objects.sync([lost], now - 3 * HOUR)
        sick = worker_info(worker_id="b#1", name="gpu-sick", problem="its GPU fell off the bus")
        Worker.objects.sync([sick], now, silent=["a#1"])
        for number in (1, 2):
            UsageQuarantine.objects.create(
                pool="p", stream_id=f"{number}-1", entry=b"\xff", reason="bytes"
            )
        UsageQuarantine.objects.create(
            pool="p", stream_id="3-1", entry=b"", reason="forged", cause=QuarantineCause.UNPROVEN
        )
        DeadLetter.objects.create(
            request_id="0198c0de-0000-7000-8000-000000000001", pool="p", model="m", attempts=3,
            api="completions", died_at=now, is_kept=True,
        )  # fmt: skip
        Seller.objects.create(name="Penstock Ltd", address="Leeds")
        use(acme, times=1, prices=DEAR)
        draft_invoice(acme.tenant, OCTOBER)
        Invoice.objects.update(blocked_reason="The counter was gone.")
        ProviderEvent.objects.create(
            provider="stripe", event_id="evt_1", verdict="puzzling", reason="Paid in eur.", body=""
        )
        leaving = make_project("Hooli", "premium").tenant
        credit.top_up(leaving.id, 7 * 10**9, reference="wire")
        close_tenant(leaving)
        add_endpoint(acme.tenant, url="https://93.184.216.34/a")
        Endpoint.objects.update(failing_since=now - HOUR)
        RefusalRollup.objects.create(
            tenant=acme.tenant, hour=hour, project_id=acme.pk, api_key_id=acme.pk, model="m",
            code="rate_limit_exceeded", limit="", scope="", count=PEAK_REFUSALS,
        )  # fmt: skip
        add_to_rollups([used_by(acme)])
        PoolUsage.objects.all().delete()
    redis.sadd(keys.known_pools(), "virtual")
    VirtualPool(redis).enqueue(Ask(request_id="r", tenant="t"))
    other_redis.hset("beat:successes", "inference.copy_workers", "1000")
    background.note_fsck(other_redis, 3, 1.0)
    text = page_text(operator)
    for sentence in (
        "Worker gpu-lost of pool fleet-tests is lost",
        "Worker gpu-sick of pool fleet-tests: its GPU fell off the bus",
        "Pool virtual: 1 request waiting, and no worker is ready",
        "1 dead letter Since",
        f"{PEAK_REFUSALS} refusals since",
        "2 quarantined usage entries Since",
        "1 usage entry that no gateway vouches for Since",
        "Run manage.py rebuild_usage_sums",
        "The invoice of Acme for October 2026 is held up",
        "The counter was gone.",
        "Stripe told something that does not fit our books",
        "Paid in eur.",
        f"The closed tenant {leaving.id} has $7.00 left of what it paid in",
        "A webhook endpoint of Acme is failing",
        "The background task inference.copy_workers is late Since 1970-01-01 00:16 UTC",
        "fsck found 3 problems",
    ):
        assert sentence in text
    assert "14 things need attention." in text


def given_up(endpoint: Endpoint, problem: Problem, at: datetime) -> Delivery:
    event = Event.objects.create(
        tenant=endpoint.tenant, type="balance.low", key=str(uuid4()), data={}
    )
    return Delivery.objects.create(
        tenant=endpoint.tenant, event=event, endpoint=endpoint, state="failed",
        last_problem=problem, next_attempt_at=None, finished_at=at,
    )  # fmt: skip


def test_deliveries_that_were_given_up_are_one_line_with_their_tenants(
    operator: Client, redis: Redis, other_redis: Redis, forget_readings: Callable[[], None]
) -> None:
    now = datetime(2026, 3, 10, 12, tzinfo=UTC)
    with operator_scope("test"):
        acme, globex, *others = (
            add_endpoint(
                make_project(name, "premium").tenant, url="https://93.184.216.34/a"
            ).endpoint
            for name in ("Acme", "Globex", "Hooli", "Initech", "Umbrella")
        )
        for hours in (1, 2, 3):
            given_up(acme, Problem.TIMEOUT, now - hours * HOUR)
        given_up(globex, Problem.TIMEOUT, now - HOUR)
        given_up(globex, Problem.TIMEOUT, now - 8 * 24 * HOUR)
        given_up(globex, Problem.ENDPOINT_DISABLED, now - HOUR)
        (line,) = failed_deliveries(now)
        assert line.what == "4 webhook deliveries given up, of Acme, Globex"
        assert line.since == now - 3 * HOUR
        for endpoint in others:
            last = given_up(endpoint, Problem.TIMEOUT, timezone.now())
        given_up(acme, Problem.TIMEOUT, timezone.now())
    text = page_text(operator)
    assert "4 webhook deliveries given up, of Acme, Hooli, Initech, 1 more tenant Since" in text
    listed = operator.get(_link(operator, "webhook deliveries given up")).content.decode()
    assert reverse("admin:webhooks_delivery_change", args=[last.pk]) in listed
    with operator_scope("test"):
        Delivery.objects.update(state="delivered")
    forget_readings()
    assert "given up, of" not in page_text(operator)


def _link(client: Client, words: str) -> str:
    page = client.get(reverse("admin:index")).content.decode()
    return html.unescape(re.findall(rf'href="([^"]*)">[^<]*{words}', page)[0])


def used_by(project: Project) -> Use:
    return Use(
        tenant_id=str(project.tenant_id),
        project_id=str(project.pk),
        api_key_id=str(issue_api_key(project).record.pk),
        tier="premium",
        pool="p",
        model="m",
        adapter="",
        arrived_ms=int(timezone.now().timestamp() * 1000),
        outcome="completed",
    )


def test_what_cannot_be_read_is_not_taken_for_nothing(
    operator: Client, redis: Redis, other_redis: Redis, settings: Any
) -> None:
    settings.PENSTOCK_DISPATCH_REDIS_URL = "redis://127.0.0.1:1/0"
    text = page_text(operator)
    assert "Nothing needs attention" not in text
    assert "2 panels could not be read." in text
    assert "The dispatch Redis is not reachable." in text
    assert summary([Reading(problem="away")]) == "1 panel could not be read."


def test_who_may_see_no_invoices_reads_of_none(
    client: Client, redis: Redis, other_redis: Redis
) -> None:
    client.force_login(somebody_who_may("view_worker"))
    text = page_text(client)
    assert "Workers" in text and "Invoices" not in text and "Webhooks" not in text


def test_a_fresh_stack_without_celery_is_one_line_and_not_forty(
    operator: Client, redis: Redis, redis_url: str
) -> None:
    with Redis.from_url(redis_url) as other:
        other.delete("beat:successes", "fsck:result")
    text = page_text(operator)
    assert "No background task has ever succeeded" in text and "is late" not in text
    assert "1 thing needs attention." in text


def test_nothing_is_late_on_a_stack_that_has_just_begun(
    operator: Client, redis: Redis, redis_url: str
) -> None:
    with Redis.from_url(redis_url) as other:
        other.delete("beat:successes", "fsck:result")
        background.note_success(other, "inference.copy_workers")
        assert "Nothing needs attention." in page_text(operator)
        other.delete("beat:successes")


def test_a_task_is_late_as_the_alert_has_it() -> None:
    task = BeatTask(name="t", interval_seconds=10, succeeded_at=1000)
    assert not task.is_late(1150) and task.is_late(1151)
    assert not BeatTask(name="t", interval_seconds=10, succeeded_at=None).is_late(1151)
    never = BeatTask(name="t", interval_seconds=10, succeeded_at=None, noted_since=1000)
    assert not never.is_late(1150) and never.is_late(1151)


def test_what_fsck_finds_at_night_is_kept_for_a_month(redis_url: str) -> None:
    app.loader.import_default_modules()
    with Redis.from_url(redis_url) as other:
        other.delete("fsck:result")
        assert background.last_fsck(other) is None
        task_success.send(
            sender=app.tasks["tenants.check_everything"], result={"problems": 4, "seconds": 61.5}
        )
        found = background.last_fsck(other)
        assert found is not None and found.problems == 4
        assert 0 < other.ttl("fsck:result") <= 30 * 86_400
        other.delete("beat:successes", "fsck:result")
