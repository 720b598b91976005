"""The page of queues and shares."""

from collections.abc import Iterator
from typing import Any, cast

import pytest
from control_plane.operator_site.dashboards.words import count, duration, percent, share_of
from django.test import Client
from django.urls import reverse
from redis import Redis

from gpu_workers.protocol import keys
from tenants.models import Project
from tests.control_plane.operator_site.records import somebody_who_may
from tests.support.dispatch.virtual_pool import Ask, VirtualPool

pytestmark = pytest.mark.django_db


@pytest.fixture
def pool(settings: Any, dispatch_redis_url: str) -> Iterator[VirtualPool]:
    settings.PENSTOCK_DISPATCH_REDIS_URL = dispatch_redis_url
    with Redis.from_url(dispatch_redis_url) as redis:
        redis.flushall()
        redis.sadd(keys.known_pools(), "virtual")
        pool = VirtualPool(redis)
        seconds, _ = cast("tuple[int, int]", redis.time())
        pool.now_ms = seconds * 1000
        yield pool
        redis.flushall()


def page_text(client: Client) -> str:
    return " ".join(client.get(reverse("admin:dashboard-queue")).content.decode().split())


def test_tenants_stand_there_by_name_with_what_they_hold(
    operator: Client, acme: Project, pool: VirtualPool
) -> None:
    pool.register("w")
    pool.claim("w", 2)
    tenant_id = str(acme.tenant.pk)
    for number in range(4):
        pool.enqueue(Ask(request_id=f"a{number}", tenant=tenant_id, weight=3))
    pool.enqueue(Ask(request_id="g", tenant="no-tenant-of-ours", weight=1))
    html = page_text(operator)
    assert (
        f'<th scope="row">{acme.tenant.name}</th><td data-label="Service class">interactive</td>'
        in html
    )
    assert '<td data-label="Share by weight" class="num">75 %</td>' in html
    assert '<th scope="row">no-tenant-of-ours</th>' in html
    assert "below its share" in html


def test_without_pools_the_page_says_so(operator: Client, pool: VirtualPool) -> None:
    html = page_text(operator)
    assert "No pool has a worker or a queue." in html
    assert "Nobody uses a pool at the moment." in html


def test_only_who_may_view_workers_sees_it(client: Client, pool: VirtualPool) -> None:
    client.force_login(somebody_who_may("view_tier"))
    assert client.get(reverse("admin:dashboard-queue")).status_code == 403


def test_figures_have_their_units_and_what_is_unknown_is_a_dash() -> None:
    assert [duration(each) for each in (None, 840, 12_400, 303_000)] == [
        "–", "840 ms", "12.4 s", "5 min 3 s",
    ]  # fmt: skip
    assert [percent(None), percent(0.0), percent(0.4321)] == ["–", "0 %", "43 %"]
    assert [share_of(1, 0), share_of(None, 4), share_of(1, 4)] == ["–", "–", "25 %"]
    assert [count(None), count(0), count(1234)] == ["–", "0", "1,234"]
