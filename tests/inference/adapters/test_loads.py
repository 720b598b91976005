"""Loads that workers have counted, on record and in reports."""

from datetime import UTC, date, datetime, timedelta
from unittest.mock import Mock

import pytest
from django.db import DatabaseError
from redis import Redis

from gpu_workers.protocol import keys
from inference.adapters.loads import Loads, loads_of, note_loads
from inference.adapters.observed import note_what_workers_say
from inference.models import AdapterLoads, AdapterState, AdapterVersion
from tenants.access.api_keys import issue_api_key
from tenants.isolation.scoping import operator_scope
from tenants.models import Project
from tests.support.adapters.records import a_ready_version, an_adapter
from tests.support.api_client import ApiClient
from tests.support.projects import make_project

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
POOL = "pool-a"
NOON = datetime.now(UTC).replace(hour=12, minute=0)
TODAY = NOON.date()


@pytest.fixture
def acme() -> Project:
    return make_project("Acme", "premium")


def load(redis: Redis, version: AdapterVersion, us: int, times: int = 1, pool: str = POOL) -> None:
    """As the functions of dispatch count it."""
    redis.hincrby(keys.pool_loads(pool), f"n:{version.opaque_name}", times)
    redis.hincrby(keys.pool_loads(pool), f"us:{version.opaque_name}", us)
    redis.sadd(keys.pool_loaded(pool), version.opaque_name)


def loads(project: Project | None, first: date = TODAY, last: date = TODAY) -> Loads:
    with operator_scope("test"):
        return loads_of(project.tenant if project else None, first, last)


def test_what_workers_have_loaded_is_on_record_once(redis: Redis, acme: Project) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    load(redis, version, 250_000, times=2)
    note_what_workers_say(redis, NOON)
    note_what_workers_say(redis, NOON)
    assert note_loads(redis, POOL, NOON) == 0
    load(redis, version, 50_000)
    note_what_workers_say(redis, NOON)
    assert loads(acme) == loads(None) == Loads(count=3, seconds=0.3)
    assert AdapterLoads.objects.count() == 1


def test_each_day_has_its_own(redis: Redis, acme: Project) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    tomorrow = NOON + timedelta(days=1)
    for us, now in ((10, NOON), (7, tomorrow), (5, tomorrow)):
        load(redis, version, us)
        note_loads(redis, POOL, now)
    assert loads(acme) == Loads(count=1, seconds=0.00001)
    assert loads(acme, tomorrow.date(), tomorrow.date()) == Loads(count=2, seconds=0.000012)
    assert loads(acme, TODAY, tomorrow.date()).count == 3


def test_a_redis_that_begins_anew_takes_nothing_back(redis: Redis, acme: Project) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    load(redis, version, 100, times=5)
    note_loads(redis, POOL, NOON)
    redis.delete(keys.pool_loads(POOL))
    load(redis, version, 30)
    note_loads(redis, POOL, NOON)
    assert loads(acme) == Loads(count=6, seconds=0.00013)


def test_a_worker_is_believed_of_its_own_pool_alone(redis: Redis, acme: Project) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    load(redis, version, 100, pool="pool-b")
    redis.hincrby(keys.pool_loads(POOL), "n:\udcff".encode(errors="surrogateescape"), 1)
    redis.sadd(keys.pool_loaded(POOL), b"\xff", "nobody's")
    assert note_loads(redis, "pool-b", NOON) == note_loads(redis, POOL, NOON) == 0
    assert loads(None).count == 0
    assert not redis.exists(keys.pool_loads("pool-b"), keys.pool_loaded(POOL))


def test_of_one_that_is_gone_nothing_more_is_counted(redis: Redis, acme: Project) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    load(redis, version, 100)
    with operator_scope("test"):
        AdapterVersion.objects.filter(pk=version.pk).update(state=AdapterState.ARCHIVED)
        AdapterVersion.objects.filter(pk=version.pk).update(state=AdapterState.DELETED)
    note_loads(redis, POOL, NOON)
    assert loads(acme).count == 1
    assert not redis.exists(keys.pool_loads(POOL))


def test_what_could_not_be_written_is_looked_at_again(
    redis: Redis, acme: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = a_ready_version(an_adapter(acme.tenant))
    load(redis, version, 100)
    with monkeypatch.context() as patch, pytest.raises(DatabaseError):
        patch.setattr(AdapterLoads, "save", Mock(side_effect=DatabaseError))
        note_loads(redis, POOL, NOON)
    assert loads(acme).count == 0
    note_loads(redis, POOL, NOON)
    assert loads(acme).count == 1


def test_the_usage_report_has_those_of_its_days_and_of_its_tenant(
    redis: Redis, acme: Project
) -> None:
    globex = make_project("Globex", "premium")
    for project, us in ((acme, 1_500_000), (globex, 9)):
        load(redis, a_ready_version(an_adapter(project.tenant)), us)
    note_loads(redis, POOL, NOON)
    key = issue_api_key(acme, scopes=["usage:read"]).key
    told = ApiClient(acme.tenant_id, key=key).get("usage").json()
    assert told["adapter_loads"] == {"count": 1, "seconds": 1.5}
    earlier = {"from": str(TODAY - timedelta(days=2)), "to": str(TODAY - timedelta(days=1))}
    told = ApiClient(acme.tenant_id, key=key).get("usage", **earlier).json()
    assert told["adapter_loads"] == {"count": 0, "seconds": 0}
