"""The overview's live panels: of this tenant alone, one reading for all pages, old ones said so."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from control_plane.live import panels
from redis import Redis

from gpu_workers.protocol import keys
from inference.usage.rollups import Use, add_to_rollups
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey, Tenant
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.dispatch.virtual_pool import Ask, VirtualPool
from tests.support.figures.rollup_uses import use_of
from tests.support.places import free_port
from tests.support.two_tenants import CANARY, TwoTenants

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("functions_loaded")]
HTMX = {"HX-Request": "true"}


@pytest.fixture
def pool(settings: Any, houses: TwoTenants, dispatch_redis_url: str) -> Iterator[VirtualPool]:
    """Acme's own pool, with a worker of one slot."""
    settings.PENSTOCK_DISPATCH_REDIS_URL = dispatch_redis_url
    with Redis.from_url(dispatch_redis_url) as redis:
        pool = VirtualPool(redis, "acme-pool")
        seconds, _ = cast("tuple[int, int]", redis.time())
        pool.now_ms = seconds * 1000
        pool.register("w")
        pool.claim("w", 1)
        yield pool
        redis.flushall()


def make_readings_old() -> None:
    for name, reading in [*panels._last._own.items()]:
        panels._last._own[name] = replace(reading, tried_at=0.0)


def used_now(key: ApiKey) -> Use:
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    return use_of(key, outcome="completed", arrived_ms=now_ms, cost_nanos=7)


def text_of(answer: Any) -> str:
    assert answer.status_code == 200 and answer["Cache-Control"] == "no-store"
    return " ".join(answer.content.decode().split())


def test_what_runs_and_waits_is_told_and_nothing_of_others(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, pool: VirtualPool
) -> None:
    tenant = str(houses.acme.tenant.id)
    for number in range(3):
        pool.enqueue(Ask(request_id=f"a{number}", tenant=tenant))
    pool.enqueue(Ask(request_id=CANARY, tenant=str(houses.globex.tenant.id)))
    answer = signed_in("viewer").get(f"{acme_address}now", headers=HTMX)
    html = text_of(answer)
    assert "<html" not in html and CANARY not in html
    [row] = answer.context["now"]["open"].data.queues
    assert (row.models, row.use.running + row.use.waiting) == ("acme-model", 3)
    assert row.use.position > 1


def test_one_fragment_brings_all_panels_and_leaves_the_charts_as_they_are(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, pool: VirtualPool
) -> None:
    client = signed_in("viewer")
    before = client.get(acme_address).context["now"]["month"].data.usage
    with operator_scope("test"):
        add_to_rollups([used_now(houses.acme.key), used_now(houses.globex.key)])
    make_readings_old()
    answer = client.get(f"{acme_address}now", headers=HTMX)
    usage = answer.context["now"]["month"].data.usage
    assert (usage.requests, usage.cost_nanos) == (before.requests + 1, before.cost_nanos + 7)
    html = text_of(answer)
    for title in ("This month", "Open now", "Speed this month", "Kept of what the tier promises"):
        assert f">{title}</h2>" in html, title
    assert 'id="month-charts" hx-preserve' in html and "<figure" not in html


def test_the_credit_is_never_in_what_all_share(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, pool: VirtualPool
) -> None:
    viewer = signed_in("viewer")
    with operator_scope("test"):
        Tenant.objects.filter(id=houses.acme.tenant.id).update(billing_mode="prepaid")
    assert "Credit left" not in text_of(viewer.get(f"{acme_address}now"))
    assert "Credit left" in text_of(signed_in("owner").get(f"{acme_address}now"))


def test_pages_share_a_reading_a_second_and_keep_it_while_redis_is_away(
    signed_in: SignIn, acme_address: str, pool: VirtualPool, settings: Any
) -> None:
    client = signed_in("viewer")
    assert "Nothing is open now." in text_of(client.get(f"{acme_address}now"))
    settings.PENSTOCK_DISPATCH_REDIS_URL = f"redis://127.0.0.1:{free_port()}"
    assert "not current" not in text_of(client.get(f"{acme_address}now"))
    make_readings_old()
    html = text_of(client.get(f"{acme_address}now"))
    assert "The queue is not reachable." in html and "These figures are from" in html
    assert "Nothing is open now." in html


def test_a_panel_belongs_to_its_tenant(
    signed_in: SignIn, houses: TwoTenants, acme_address: str, pool: VirtualPool
) -> None:
    pool.enqueue(Ask(request_id="a0", tenant=str(houses.acme.tenant.id)))
    signed_in("owner").get(f"{acme_address}now")
    other = signed_in("owner")
    other.force_login(houses.globex.people["owner"])
    html = text_of(other.get(f"/t/{houses.globex.tenant.id}/now"))
    assert "Nothing is open now." in html and "acme" not in html


def test_looking_changes_nothing_in_redis(
    pool: VirtualPool, signed_in: SignIn, acme_address: str
) -> None:
    before = set(cast("list[bytes]", pool.redis.keys("*")))
    signed_in("viewer").get(f"{acme_address}now")
    assert set(cast("list[bytes]", pool.redis.keys("*"))) == before
    assert keys.pool_scheduler("acme-pool").encode() in before
