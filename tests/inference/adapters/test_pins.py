"""Pinned adapters on record: as many as the tier allows, and what workers are told of them."""

from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from django.db import transaction
from redis import Redis

from gpu_workers.protocol import codec, keys
from inference.adapters import lifecycle
from inference.adapters.pins import honoured_pins, pin_problems, pins_by_pool, write_pins
from inference.models import Adapter, AdapterVersion, Pool, ServedModel
from tenants.audit.log import seal_now
from tenants.isolation.scoping import tenant_scope
from tenants.models import AuditEvent, PolicyChange, Project, Tier
from tenants.offboarding.closing import close_tenant
from tests.support.adapters.records import a_base, a_ready_version, an_adapter
from tests.support.projects import make_project
from tests.support.refusals import database_refuses, raises_conflict

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("operators_eye")]
POOL = "pool-a"


@pytest.fixture
def acme() -> Project:
    return make_project("Acme", "premium")


@pytest.fixture
def globex() -> Project:
    return make_project("Globex", "standard")


def allow(tier: str, pins: int) -> None:
    Tier.objects.filter(name=tier).update(max_pinned_adapters=pins)


def a_pinned_version(project: Project, slug: str = "support") -> AdapterVersion:
    version = a_ready_version(an_adapter(project.tenant, slug))
    lifecycle.pin_adapter(version.adapter)
    return version


def places(pool: str = POOL) -> dict[str, int]:
    pins = pins_by_pool()
    return pins[pool].places if pool in pins else {}


def written(redis: Redis, pool: str = POOL) -> dict[str, int]:
    row = cast("bytes | None", redis.get(keys.pool_adapter_pins(pool)))
    return {} if row is None else codec.decode_adapter_pins(row).places


def test_a_pin_is_on_record_and_in_the_audit_log(acme: Project) -> None:
    adapter = an_adapter(acme.tenant)
    pinned = lifecycle.pin_adapter(adapter)
    assert pinned.pinned_at is not None
    assert lifecycle.pin_adapter(adapter).pinned_at == pinned.pinned_at, "twice is once"
    assert lifecycle.unpin_adapter(adapter).pinned_at is None
    lifecycle.unpin_adapter(adapter)
    seal_now()
    events = AuditEvent.objects.filter(record_id=str(adapter.pk))
    assert sorted(event.verb for event in events) == ["created", "pinned", "unpinned"]


def test_a_pin_is_no_change_of_policy(acme: Project) -> None:
    adapter = an_adapter(acme.tenant)
    before = PolicyChange.objects.count()
    lifecycle.pin_adapter(adapter)
    assert PolicyChange.objects.count() == before


def test_a_tier_bounds_the_pins(acme: Project) -> None:
    allow("premium", 1)
    first, second = an_adapter(acme.tenant, "one"), an_adapter(acme.tenant, "two")
    lifecycle.pin_adapter(first)
    with raises_conflict("too_many_pinned_adapters"):
        lifecycle.pin_adapter(second)
    lifecycle.pin_adapter(first)
    lifecycle.unpin_adapter(first)
    lifecycle.pin_adapter(second)
    allow("premium", 0)
    with raises_conflict("too_many_pinned_adapters"):
        lifecycle.pin_adapter(first)


def test_what_is_archived_is_not_pinned(acme: Project) -> None:
    adapter = a_pinned_version(acme).adapter
    assert lifecycle.archive_adapter(adapter).pinned_at is None
    with raises_conflict("adapter_archived"):
        lifecycle.pin_adapter(adapter)
    assert an_adapter(acme.tenant).pinned_at is None, "nor when it comes back"
    lifecycle.archive_adapter(adapter)
    with database_refuses(constraint="adapter_archived_is_not_pinned"), transaction.atomic():
        Adapter.objects.filter(pk=adapter.pk).update(pinned_at=datetime.now(UTC))


def test_no_tenant_pins_anothers(acme: Project, globex: Project) -> None:
    adapter = an_adapter(acme.tenant)
    with tenant_scope(globex.tenant_id), pytest.raises(Adapter.DoesNotExist):
        lifecycle.unpin_adapter(adapter)
    with tenant_scope(acme.tenant_id):
        assert lifecycle.pin_adapter(adapter).pinned_at is not None


def test_workers_are_told_of_what_answers_first_and_of_canaries_after_that(acme: Project) -> None:
    first = a_pinned_version(acme, "one")
    canary = a_ready_version(first.adapter)
    a_ready_version(first.adapter)  # that nobody is sent to
    lifecycle.set_traffic_split(first.adapter, {1: 900, 2: 100})
    second = a_pinned_version(acme, "two")
    a_ready_version(an_adapter(acme.tenant, "three"))
    assert places() == {first.opaque_name: 1, second.opaque_name: 2, canary.opaque_name: 3}
    lifecycle.set_traffic_split(first.adapter, {2: 1000})
    assert places() == {canary.opaque_name: 1, second.opaque_name: 2}


def test_each_tenant_and_each_pool_has_places_of_its_own(acme: Project, globex: Project) -> None:
    mine, theirs = a_pinned_version(acme), a_pinned_version(globex)
    assert places() == {mine.opaque_name: 1, theirs.opaque_name: 1}
    a_base("another")
    ServedModel.objects.filter(name="another").update(pool=Pool.objects.create(name="pool-b"))
    elsewhere = a_ready_version(an_adapter(acme.tenant, "far", model="another"))
    lifecycle.pin_adapter(elsewhere.adapter)
    assert places("pool-b") == {elsewhere.opaque_name: 1}
    assert places() == {mine.opaque_name: 1, theirs.opaque_name: 1}


def test_of_a_lowered_tier_those_count_that_were_pinned_first(acme: Project) -> None:
    versions = [a_pinned_version(acme, slug) for slug in ("c", "b", "a")]
    now = datetime.now(UTC)
    for hours, version in enumerate(versions):
        Adapter.objects.filter(pk=version.adapter_id).update(pinned_at=now + timedelta(hours=hours))
    allow("premium", 2)
    acme.tenant.refresh_from_db()
    assert set(places()) == {versions[0].opaque_name, versions[1].opaque_name}
    assert honoured_pins(acme.tenant) == {versions[0].adapter_id, versions[1].adapter_id}
    lifecycle.unpin_adapter(versions[0].adapter)
    assert set(places()) == {versions[1].opaque_name, versions[2].opaque_name}
    allow("premium", 0)
    assert places() == {}


def test_who_pins_what_answers_nobody_has_used_a_pin(acme: Project) -> None:
    allow("premium", 1)
    lifecycle.pin_adapter(an_adapter(acme.tenant, "empty"))
    with raises_conflict("too_many_pinned_adapters"):
        a_pinned_version(acme, "other")
    assert places() == {}


def test_a_suspended_tenants_pins_wait_for_its_return(acme: Project, globex: Project) -> None:
    mine, theirs = a_pinned_version(acme), a_pinned_version(globex)
    acme.tenant.suspend()
    assert set(places()) == {theirs.opaque_name}
    acme.tenant.resume()
    assert set(places()) == {mine.opaque_name, theirs.opaque_name}
    close_tenant(acme.tenant)
    assert set(places()) == {theirs.opaque_name}


def test_the_same_bytes_twice_are_one_place(acme: Project) -> None:
    first = a_pinned_version(acme, "one")
    again = a_ready_version(
        an_adapter(acme.tenant, "two"),
        opaque_name=first.opaque_name,
        digest=first.digest,
        path=first.path,
    )
    lifecycle.pin_adapter(again.adapter)
    third = a_pinned_version(acme, "three")
    assert places() == {first.opaque_name: 1, third.opaque_name: 2}


def test_what_is_written_follows_the_records_and_fsck_sees_where_not(
    redis: Redis, acme: Project
) -> None:
    version = a_pinned_version(acme)
    assert list(pin_problems(redis))
    write_pins(redis)
    assert written(redis) == {version.opaque_name: 1}
    assert not list(pin_problems(redis))
    redis.set(keys.pool_adapter_pins(POOL), b"junk")
    assert list(pin_problems(redis))
    lifecycle.unpin_adapter(version.adapter)
    write_pins(redis)
    assert not redis.exists(keys.pool_adapter_pins(POOL))
    assert not list(pin_problems(redis))
