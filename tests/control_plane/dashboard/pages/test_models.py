"""What the organisation can call: prices, what its workers do, and how it did today."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from control_plane.live import panels
from redis import Redis

from gpu_workers.protocol.messages import WorkerState
from inference.models import ServedModel
from inference.usage.rollups import add_to_rollups
from tenants.isolation.scoping import operator_scope
from tests.control_plane.dashboard.conftest import SignIn
from tests.support.figures.rollup_uses import use_of
from tests.support.fleet import write_worker
from tests.support.places import free_port
from tests.support.two_tenants import CANARY, TwoTenants

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def redis(settings: Any, dispatch_redis_url: str) -> Iterator[Redis]:
    settings.PENSTOCK_DISPATCH_REDIS_URL = dispatch_redis_url
    make_readings_old()
    with Redis.from_url(dispatch_redis_url) as redis:
        yield redis
        redis.flushall()


def make_readings_old() -> None:
    for name, reading in [*panels._last._own.items()]:
        panels._last._own[name] = replace(reading, tried_at=0.0)


def rows_of(answer: Any) -> dict[str, Any]:
    assert answer.status_code == 200
    return {row.model.name: row for row in answer.context["models"]}


def test_it_lists_what_the_tenant_can_call_and_nothing_of_others(
    signed_in: SignIn, acme_address: str
) -> None:
    answer = signed_in("viewer").get(f"{acme_address}models")
    assert list(rows_of(answer)) == ["acme-model", "public-model"]
    html = answer.content.decode()
    assert CANARY not in html
    assert "2,048 tokens" in html and "chat, completions" in html
    # One micro-dollar a million tokens, at the multiplier of 1 of the tier.
    assert "$0.000001 prompt" in html and "free" in html
    assert 'aria-current="page"' in html.split("Models</span>")[0].rsplit("<a", 1)[1]


def test_a_model_is_ready_with_a_worker_that_is_and_not_without(
    signed_in: SignIn, acme_address: str, redis: Redis
) -> None:
    write_worker(redis, "acme-pool")
    write_worker(redis, "public-pool", state=WorkerState.STARTING)
    rows = rows_of(signed_in("viewer").get(f"{acme_address}models"))
    assert {name: row.is_ready for name, row in rows.items()} == {
        "acme-model": True,
        "public-model": False,
    }


def test_a_worker_that_has_a_problem_makes_no_model_ready(
    signed_in: SignIn, acme_address: str, redis: Redis
) -> None:
    write_worker(redis, "acme-pool", problem="The engine does not answer.")
    rows = rows_of(signed_in("viewer").get(f"{acme_address}models"))
    assert rows["acme-model"].is_ready is False


def test_without_redis_its_state_is_unknown_and_the_rest_stands(
    signed_in: SignIn, acme_address: str, settings: Any
) -> None:
    settings.PENSTOCK_DISPATCH_REDIS_URL = f"redis://127.0.0.1:{free_port()}/0"
    answer = signed_in("viewer").get(f"{acme_address}models")
    assert {row.is_ready for row in rows_of(answer).values()} == {None}
    assert "state unknown" in answer.content.decode()


def test_a_pool_that_scales_from_zero_is_not_said_to_lack_a_worker(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    with operator_scope("test"):
        pool = ServedModel.objects.get(name="acme-model").pool
        pool.scales_from_zero = True
        pool.save()
    html = signed_in("viewer").get(f"{acme_address}models").content.decode()
    assert html.count("starts when asked") == 1 and html.count("no worker") == 1


def test_today_counts_what_was_asked_and_served_by_itself_and_its_adapters(
    signed_in: SignIn, houses: TwoTenants, acme_address: str
) -> None:
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    asked: dict[str, Any] = {"model": "acme-model", "arrived_ms": now_ms, "itl_ms": 10.0}
    with operator_scope("test"):
        add_to_rollups(
            [
                use_of(houses.acme.key, **asked, outcome="completed", ttft_ms=100.0),
                use_of(houses.acme.key, **asked, outcome="completed", adapter="acme/support"),
                use_of(houses.acme.key, **asked, outcome="cancelled"),
                use_of(houses.acme.key, **asked, outcome="failed", ttft_ms=None),
                use_of(houses.globex.key, **asked, outcome="failed"),
                use_of(houses.acme.key, **asked | {"arrived_ms": now_ms - 90_000_000}),
            ]
        )
    answer = signed_in("viewer").get(f"{acme_address}models")
    today = rows_of(answer)["acme-model"].today
    assert (today.requests, today.served_percent) == (4, 75.0)
    assert today.ttft_ms["p99"] == pytest.approx(100, rel=0.05)
    assert "75.00&nbsp;%" in answer.content.decode()
    assert rows_of(answer)["public-model"].today.requests == 0


def test_a_completions_only_model_has_a_request_of_that_kind(
    signed_in: SignIn, acme_address: str
) -> None:
    with operator_scope("test"):
        model = ServedModel.objects.get(name="acme-model")
        model.capabilities = ["completions"]
        model.save()
    rows = rows_of(signed_in("viewer").get(f"{acme_address}models"))
    assert "/v1/completions" in rows["acme-model"].curl
    assert "/v1/chat/completions" in rows["public-model"].curl
