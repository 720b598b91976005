"""Adapters in the policy snapshot: a row a name, and a list of them for each tenant."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest
from django.db import transaction
from redis import Redis

from gpu_workers.protocol import keys, stream_fields
from gpu_workers.protocol.codec import (
    decode_adapter,
    decode_adapter_list,
    decode_policy_delta,
    decode_tenant,
)
from gpu_workers.protocol.policy import AdapterPolicy
from inference.adapters import lifecycle
from tenants.fsck import run_checks
from tenants.models import Project
from tenants.offboarding.closing import close_tenant
from tenants.policy import writer
from tests.support.adapters.records import BASE, a_ready_version, an_adapter, an_upload

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("operators_session"),
]


@pytest.fixture(autouse=True)
def _empty_redis(policy_redis: Redis) -> None:
    """Every commit of these tests is written to it."""


def written(redis: Redis, name: str = "acme/support") -> AdapterPolicy | None:
    row = cast(bytes | None, redis.hget(keys.policy_adapters(), name))
    return None if row is None else decode_adapter(row)


def listed(redis: Redis, field: str = "acme/") -> list[str]:
    row = cast(bytes | None, redis.hget(keys.policy_adapters(), field))
    return [] if row is None else decode_adapter_list(row).names


def newest_delta(redis: Redis) -> list[str]:
    entries: Any = redis.xrevrange(keys.policy_deltas(), count=1)
    return decode_policy_delta(entries[0][1][stream_fields.POLICY_DELTA_FIELD.encode()]).adapters


def done(verb: Callable[..., object], *arguments: object) -> None:
    """In a transaction of its own, as doors do it."""
    with transaction.atomic():
        verb(*arguments)


def problems() -> Iterator[str]:
    return (each.problem for each in run_checks() if each.check == "policy snapshot")


def test_an_adapter_is_in_the_snapshot_once_a_version_is_ready(
    policy_redis: Redis, acme: Project, globex: Project
) -> None:
    adapter = an_adapter(acme.tenant)
    an_upload(adapter)
    assert written(policy_redis) is None
    version = a_ready_version(adapter)
    row = written(policy_redis)
    assert row is not None
    assert (row.name, row.tenant_id, row.model) == ("acme/support", str(acme.tenant_id), BASE)
    assert [(each.number, each.adapter, each.permille) for each in row.versions] == [
        (2, version.opaque_name, 1000)
    ]
    assert (listed(policy_redis), listed(policy_redis, "globex/")) == (["acme/support"], [])
    assert newest_delta(policy_redis) == ["acme/", "acme/support"]
    assert list(problems()) == []


def test_traffic_and_the_end_are_in_the_snapshot(policy_redis: Redis, acme: Project) -> None:
    adapter = an_adapter(acme.tenant)
    first = a_ready_version(adapter)
    a_ready_version(adapter)
    a_ready_version(an_adapter(acme.tenant, "other"))
    done(lifecycle.set_traffic_split, adapter, {1: 900, 2: 100})
    row = written(policy_redis)
    assert row is not None
    assert [each.permille for each in row.versions] == [900, 100]
    done(lifecycle.set_traffic_split, adapter, {2: 1000})
    done(lifecycle.archive_version, first)
    row = written(policy_redis)
    assert row is not None
    assert [(each.number, each.permille) for each in row.versions] == [(2, 1000)]
    done(lifecycle.archive_adapter, adapter)
    assert written(policy_redis) is None
    assert listed(policy_redis) == ["acme/other"]
    assert list(problems()) == []


def test_two_tenants_with_the_same_name_have_a_row_each(
    policy_redis: Redis, acme: Project, globex: Project
) -> None:
    mine, theirs = (a_ready_version(an_adapter(each.tenant)) for each in (acme, globex))
    assert mine.opaque_name != theirs.opaque_name
    for name, version in (("acme/support", mine), ("globex/support", theirs)):
        row = written(policy_redis, name)
        assert row is not None
        assert row.versions[0].adapter == version.opaque_name


def test_a_whole_snapshot_has_all_versions_of_two_tenants_adapters_with_the_same_name(
    policy_redis: Redis, acme: Project, globex: Project
) -> None:
    adapters = [an_adapter(each.tenant) for each in (acme, globex)]
    for _ in range(2):
        for adapter in adapters:
            a_ready_version(adapter)
    writer.rebuild_policy()
    for tenant in ("acme", "globex"):
        row = written(policy_redis, f"{tenant}/support")
        assert row is not None
        assert [each.number for each in row.versions] == [1, 2]
        assert listed(policy_redis, f"{tenant}/") == [f"{tenant}/support"]
    assert list(problems()) == []


def test_a_tenants_row_has_its_slug(policy_redis: Redis, acme: Project) -> None:
    row = cast(bytes, policy_redis.hget(keys.policy_tenants(), str(acme.tenant_id)))
    assert decode_tenant(row).slug == "acme"


def test_a_redis_that_lost_everything_gets_the_adapters_again(
    policy_redis: Redis, acme: Project
) -> None:
    a_ready_version(an_adapter(acme.tenant))
    row = written(policy_redis)
    policy_redis.delete(keys.policy_adapters())
    assert len(list(problems())) == 2
    writer.rebuild_policy()
    assert written(policy_redis) == row
    assert listed(policy_redis) == ["acme/support"]
    assert list(problems()) == []


def test_a_closed_tenants_adapters_leave_the_snapshot(policy_redis: Redis, acme: Project) -> None:
    a_ready_version(an_adapter(acme.tenant))
    close_tenant(acme.tenant)
    assert written(policy_redis) is None
    assert listed(policy_redis) == []
    assert list(problems()) == []
