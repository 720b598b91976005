"""Versions of adapters as the API shows them: what is on record, and which workers have them."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from pytest_django import Settings
from redis import Redis

from gpu_workers.protocol import keys
from inference.adapters.lifecycle import archive_version
from inference.adapters.versions import begin_validation, mark_refused
from inference.models import Adapter, AdapterVersion
from tenants.isolation.scoping import operator_scope
from tests.support.adapters.records import a_ready_version, an_upload
from tests.support.api_client import ApiClient
from tests.support.two_tenants import House

AsRole = Callable[[str], ApiClient]
NOWHERE = {"disk": 0, "memory": 0, "slot": 0}


@pytest.fixture
def adapter(acme: House) -> Adapter:
    """Two versions, both ready; the first answers."""
    with operator_scope("test"):
        return Adapter.objects.select_related("tenant", "model").get(
            pk=acme.adapter_version.adapter_id
        )


@pytest.fixture
def path(adapter: Adapter) -> str:
    return f"adapters/{adapter.pk}/versions"


def held(redis: Redis, adapter: Adapter, number: int, **workers: int) -> None:
    """Have workers post how near they have a version."""
    with operator_scope("test"):
        version = adapter.versions.get(number=number)
    key = keys.pool_adapter_workers(adapter.model.pool_id, version.opaque_name)
    redis.zadd(key, dict(workers))


def shown(answer: Any) -> dict[int, tuple[str, Any]]:
    """State and workers, by number."""
    assert answer.status_code == 200, answer.content
    return {row["number"]: (row["state"], row["workers"]) for row in answer.json()["data"]}


def test_a_version_that_workers_have_is_live_and_says_how_near(
    as_role: AsRole, adapter: Adapter, path: str, redis: Redis
) -> None:
    held(redis, adapter, 1, w1=3, w2=2, w3=2, w4=1)
    # Is to get it, and has nothing of it yet.
    held(redis, adapter, 2, w1=0)
    viewer = as_role("viewer")
    assert shown(viewer.get(path)) == {
        1: ("live", {"disk": 1, "memory": 2, "slot": 1}),
        2: ("ready", NOWHERE),
    }
    with operator_scope("test"):
        first = adapter.versions.get(number=1)
    one = viewer.get(f"{path}/{first.pk}").json()
    assert (one["state"], one["workers"]) == ("live", {"disk": 1, "memory": 2, "slot": 1})


def test_without_redis_the_state_is_the_one_on_record_and_workers_are_unknown(
    as_role: AsRole, acme: House, path: str, settings: Settings
) -> None:
    settings.PENSTOCK_DISPATCH_REDIS_URL = "redis://127.0.0.1:1/0"
    viewer = as_role("viewer")
    assert shown(viewer.get(path)) == {1: ("ready", None), 2: ("ready", None)}
    assert viewer.get(f"{path}/{acme.adapter_version.pk}").json()["workers"] is None
    assert sorted(shown(viewer.get(path, state="ready"))) == [1, 2]
    assert shown(viewer.get(path, state="live")) == {}


def test_what_is_not_stored_is_on_no_worker_whoever_can_tell(
    as_role: AsRole, adapter: Adapter, path: str, settings: Settings
) -> None:
    with operator_scope("test"):
        AdapterVersion.objects.all().delete()
        mark_refused(begin_validation(an_upload(adapter)), "rank", "Too large.")
        an_upload(adapter)
    settings.PENSTOCK_DISPATCH_REDIS_URL = "redis://127.0.0.1:1/0"
    states = [(state, workers) for state, workers in shown(as_role("viewer").get(path)).values()]
    assert states == [("queued", NOWHERE), ("refused", NOWHERE)]


def test_versions_are_found_by_the_state_that_is_shown(
    as_role: AsRole, adapter: Adapter, path: str, redis: Redis
) -> None:
    with operator_scope("test"):
        archive_version(a_ready_version(adapter))
    held(redis, adapter, 2, w1=1)
    held(redis, adapter, 3, w1=1)
    viewer = as_role("viewer")
    assert sorted(shown(viewer.get(path, state="live"))) == [2]
    assert sorted(shown(viewer.get(path, state="ready"))) == [1]
    assert shown(viewer.get(path, state="archived")) == {
        3: ("archived", {"disk": 1, "memory": 0, "slot": 0})
    }
    assert viewer.get(path, state="alive").status_code == 400


def test_what_workers_of_anothers_adapter_have_is_not_told(
    as_role: AsRole, globex: House, path: str, redis: Redis
) -> None:
    with operator_scope("test"):
        theirs = Adapter.objects.select_related("model").get(pk=globex.adapter_version.adapter_id)
    held(redis, theirs, 1, w1=3)
    held(redis, theirs, 2, w1=3)
    owner = as_role("owner")
    assert [state for state, _ in shown(owner.get(path)).values()] == ["ready", "ready"]
    assert owner.get(f"adapters/{theirs.pk}/versions").status_code == 404


def test_a_list_costs_as_much_for_many_versions_as_for_two(
    as_role: AsRole, adapter: Adapter, path: str, redis: Redis
) -> None:
    viewer = as_role("viewer")

    def cost() -> tuple[int, int]:
        before = redis.info("stats")["total_connections_received"]
        with CaptureQueriesContext(connection) as queries:
            assert viewer.get(path).status_code == 200
        return len(queries), redis.info("stats")["total_connections_received"] - before

    cost()
    of_two = cost()
    with operator_scope("test"):
        for _ in range(20):
            a_ready_version(adapter)
    assert cost() == of_two


def test_archiving_answers_with_who_still_has_it(
    as_role: AsRole, acme: House, adapter: Adapter, path: str, redis: Redis
) -> None:
    held(redis, adapter, 2, w1=2)
    answer = as_role("developer").post(f"{path}/{acme.adapter_version.pk}/archive")
    assert answer.status_code == 200, answer.content
    assert (answer.json()["state"], answer.json()["workers"]["memory"]) == ("archived", 1)


@pytest.mark.parametrize(
    "traffic",
    [[{"version": 1}], [{"permille": 1000}], [{}], [{"version": 1, "permille": 1, "x": 1}]],
)
def test_a_share_is_whole_in_a_change_too(
    traffic: list[dict[str, int]], as_role: AsRole, adapter: Adapter
) -> None:
    path = f"adapters/{adapter.id}"
    answer = as_role("owner").patch(path, {"traffic": traffic})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("traffic")
    assert as_role("owner").patch(path, {}).status_code == 400
