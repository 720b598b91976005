"""The fleet page: what workers tell, what they do not, and what is old."""

import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from control_plane.live import panels
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.figures import EngineFigures, GpuFigures
from gpu_workers.protocol.messages import WorkerState
from inference.models import Worker
from tenants.isolation.scoping import operator_scope
from tests.control_plane.operator_site.records import somebody_who_may
from tests.support.fleet import worker_info, write_worker

pytestmark = pytest.mark.django_db
GIB = 1024**3
FIGURES = EngineFigures(
    kv_used=0.4321,
    batch_used=0.5,
    step_us=8_240,
    prefix_asked_tokens=1000,
    prefix_hit_tokens=250,
    preemptions=1_234,
    drafted_tokens=200,
    accepted_tokens=150,
    adapters_in_slots=2,
    adapters_in_memory=6,
)
GPU = GpuFigures(
    uuid="GPU-1",
    name="H100",
    index=0,
    busy=0.93,
    memory_used_bytes=61 * GIB,
    memory_total_bytes=80 * GIB,
    power_watts=512.3,
    celsius=61,
    throttling=["hardware_heat"],
    ecc_corrected=7,
)


@pytest.fixture
def redis(settings: Any, dispatch_redis_url: str) -> Iterator[Redis]:
    settings.PENSTOCK_DISPATCH_REDIS_URL = dispatch_redis_url
    with Redis.from_url(dispatch_redis_url) as redis:
        redis.flushall()
        yield redis


def page_text(client: Client, name: str = "fleet") -> str:
    answer = client.get(reverse(f"admin:dashboard-{name}"))
    assert answer.status_code == 200
    return answer.content.decode()


def cells_of(html: str, worker: str) -> list[str]:
    """The text of each cell of a worker's row, and of its GPUs' row below."""
    rows = re.findall(r"<tr.*?</tr>", html, re.S)
    at = next(at for at, row in enumerate(rows) if f">{worker}<" in row)
    cells = re.findall(r"<t[hd].*?>(.*?)</t[hd]>", "".join(rows[at : at + 2]), re.S)
    return [" ".join(re.sub("<[^>]*>", " ", cell).split()) for cell in cells]


def test_a_workers_row_says_what_it_tells(operator: Client, redis: Redis) -> None:
    write_worker(redis, "large", name="gpu-1", figures=FIGURES, gpus=[GPU], adapter_slots=4)
    html = page_text(operator)
    cells = cells_of(html, "gpu-1")
    assert cells[:11] == [
        "gpu-1 node-of-the-operator", "ready", "3 / 8", "1", "43 %", "50 %", "8.2 ms", "25 %",
        "1,234", "75 %", "2 / 6",
    ]  # fmt: skip
    assert re.fullmatch(r"\d s ago", cells[11])
    assert cells[-1] == (
        "GPU 0: 93 % busy, 61 of 80 GiB, 61 °C, 512 W heat (hardware), 7 corrected memory errors"
    )
    assert "1 of 1 ready · 3 of 8 slots in use · 0 queued" in html


def test_what_an_old_worker_does_not_tell_is_a_dash_and_never_nought(
    operator: Client, redis: Redis
) -> None:
    write_worker(redis, "large", name="old")
    write_worker(
        redis,
        "small",
        name="no-gpu",
        worker_id="x#1",
        gpus=[],
        figures=EngineFigures(batch_used=0.0),
    )
    html = page_text(operator)
    assert cells_of(html, "old")[4:11] == ["–"] * 7
    assert cells_of(html, "old")[-1] == "GPU –"
    assert cells_of(html, "no-gpu")[5] == "0 %"
    assert cells_of(html, "no-gpu")[-1] == "GPU none"


def test_problems_and_warnings_stand_beside_their_worker(operator: Client, redis: Redis) -> None:
    write_worker(redis, "a", name="full", problem="its outbox takes nothing: full")
    write_worker(redis, "b", name="hot", warning="GPU 0 is throttled: heat")
    write_worker(redis, "c", name="leaving", state=WorkerState.DRAINING)
    write_worker(redis, "d", name="dead")
    redis.zadd(keys.pool_heartbeats("d"), {"d-worker#1": 1_000})
    html = page_text(operator)
    assert cells_of(html, "full")[1] == "takes nothing"
    assert "its outbox takes nothing: full" in html
    assert cells_of(html, "hot")[1] == "ready"
    assert "GPU 0 is throttled: heat" in html
    assert cells_of(html, "leaving")[1] == "draining"
    assert cells_of(html, "dead")[1] == "lost"
    may_drain = {name for name in ("full", "hot", "leaving", "dead") if f"Drain {name}" in html}
    assert may_drain == {"full", "hot"}


def test_one_that_stays_can_be_resumed_and_drained(operator: Client, redis: Redis) -> None:
    write_worker(redis, "a", name="held", state=WorkerState.DRAINED, stays=True)
    write_worker(redis, "b", name="ending", state=WorkerState.DRAINING, stays=True)
    write_worker(redis, "c", name="leaving", state=WorkerState.DRAINING)
    html = page_text(operator)
    assert cells_of(html, "held")[1] == "drained"
    for verb in ("Resume", "Drain"):
        named = {name for name in ("held", "ending", "leaving") if f"{verb} {name}" in html}
        assert named == {"held", "ending"}


def test_what_a_worker_says_of_itself_is_text_and_no_markup(operator: Client, redis: Redis) -> None:
    """A GPU node is the least trusted part."""
    evil = '<script>alert("x")</script>'
    write_worker(
        redis, "a", name=evil, host=evil, problem=evil, warning=evil,
        gpus=[GpuFigures(uuid=evil, name=evil, index=0, throttling=[evil])],
    )  # fmt: skip
    assert evil not in page_text(operator)


def test_a_worker_of_another_version_hides_no_other(operator: Client, redis: Redis) -> None:
    write_worker(redis, "a", name="gpu-1")
    redis.hset(keys.pool_workers("a"), "broken#1", b"\xff")
    redis.zadd(keys.pool_heartbeats("a"), {"broken#1": 2_000_000_000_000})
    html = page_text(operator)
    assert cells_of(html, "gpu-1")[1] == "ready"
    assert "What some of its workers say cannot be read." in html


def test_a_pool_that_cannot_be_read_hides_no_other(operator: Client, redis: Redis) -> None:
    write_worker(redis, "a", name="gpu-1")
    write_worker(redis, "b", name="gpu-2")
    redis.delete(keys.pool_heartbeats("b"))
    redis.set(keys.pool_heartbeats("b"), "1")
    html = page_text(operator)
    assert cells_of(html, "gpu-1")[1] == "ready"
    assert "What Redis has of it cannot be read." in html
    attention = operator.get(reverse("admin:index")).content.decode()
    assert "Pool b: what Redis has of it cannot be read" in attention


def test_a_redis_that_is_away_leaves_the_figures_and_says_since_when(
    operator: Client, redis: Redis, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_worker(redis, "large", name="gpu-1")
    page_text(operator)
    settings.PENSTOCK_DISPATCH_REDIS_URL = "redis://127.0.0.1:1"
    monkeypatch.setattr(panels, "FRESH_SECONDS", 0)
    answer = operator.get(reverse("admin:dashboard-fleet-panels")).content.decode()
    assert "The dispatch Redis is not reachable. These figures are from 20" in answer
    assert cells_of(answer, "gpu-1")[1] == "ready"


def test_workers_that_fell_silent_are_lost_and_drained_ones_are_not(
    operator: Client, redis: Redis
) -> None:
    now = timezone.now()
    with operator_scope("test"):
        drained = worker_info(worker_id="left#1", name="left")
        killed = worker_info(
            worker_id="killed#1", name="killed", warning="GPU 0 is throttled: heat"
        )
        Worker.objects.sync([drained, killed], now - timedelta(minutes=2))
        Worker.objects.sync([], now - timedelta(minutes=1), silent=["killed#1"])
    html = page_text(operator)
    assert cells_of(html, "killed")[4] == "GPU 0 is throttled: heat"
    assert ">left<" not in html


def test_without_workers_the_page_says_what_would_stand_there(
    operator: Client, redis: Redis, forget_readings: Callable[[], None]
) -> None:
    html = page_text(operator)
    assert "No workers yet." in html
    redis.sadd(keys.known_pools(), "empty")
    redis.zadd(keys.pool_queue("empty"), {"r1": 1})
    forget_readings()
    assert "No workers: requests wait until one starts." in page_text(operator)


def test_the_fragment_is_the_panels_alone_and_asks_postgresql_for_the_session_and_no_more(
    operator: Client, redis: Redis
) -> None:
    write_worker(redis, "large", name="gpu-1")
    address = reverse("admin:dashboard-fleet-panels")
    answer = operator.get(address)
    assert b"<html" not in answer.content
    assert answer["Cache-Control"] == "no-store"
    with CaptureQueriesContext(
        connection,
    ) as queries:
        operator.get(address)
    tables = {name for each in queries for name in re.findall(r'FROM "(\w+)"', each["sql"])}
    assert not any("worker" in table for table in tables), tables
    assert len(queries) <= 4, [each["sql"] for each in queries]


def test_only_operators_who_may_view_workers_see_the_page(client: Client, redis: Redis) -> None:
    page, fragment = (reverse(f"admin:dashboard-{name}") for name in ("fleet", "fleet-panels"))
    assert client.get(page).status_code == client.get(fragment).status_code == 302
    signed_out = client.get(fragment, headers={"HX-Request": "true"})
    assert (signed_out.status_code, signed_out["HX-Refresh"]) == (401, "true")
    client.force_login(somebody_who_may("view_tier"))
    assert client.get(page).status_code == client.get(fragment).status_code == 403
    assert page.encode() not in client.get(reverse("admin:tenants_tier_changelist")).content


def test_who_may_look_and_not_drain_sees_no_drain(client: Client, redis: Redis) -> None:
    write_worker(redis, "large", name="gpu-1")
    client.force_login(somebody_who_may("view_worker"))
    html = page_text(client)
    assert ">gpu-1<" in html
    assert "Drain gpu-1" not in html


def test_the_sidebar_begins_with_the_dashboards(operator: Client, redis: Redis) -> None:
    html = page_text(operator)
    assert html.index(reverse("admin:dashboard-fleet")) < html.index(
        reverse("admin:tenants_tenant_changelist")
    )
