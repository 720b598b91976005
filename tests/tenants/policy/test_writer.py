"""The policy writer, against a real PostgreSQL and Redis."""

from typing import cast

import pytest
from django.db import transaction
from django.db.models import ProtectedError
from pytest_django import Settings
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.codec import decode_api_key, decode_model, decode_tenant
from gpu_workers.protocol.policy import ApiKeyPolicy, ModelPolicy, OnSaturation, TenantPolicy
from inference.models import Pool, ServedModel
from tenants.access.api_keys import issue_api_key, revoke_api_key
from tenants.access.default_tiers import ensure_default_tiers
from tenants.access.projects import change_project
from tenants.models import ApiKey, PolicyVersion, Project, Tenant, Tier
from tenants.policy import writer
from tests.support.places import free_port

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("operators_session"),
]


@pytest.fixture(autouse=True)
def _empty_redis(policy_redis: Redis) -> None:
    """Every commit of these tests is written to it."""


def written_key(redis: Redis, record: ApiKey) -> ApiKeyPolicy | None:
    data = cast(bytes | None, redis.hget(keys.policy_api_keys(), record.public_id))
    return None if data is None else decode_api_key(data)


def written_model(redis: Redis, name: str) -> ModelPolicy | None:
    data = cast(bytes | None, redis.hget(keys.policy_models(), name))
    return None if data is None else decode_model(data)


def written_tenant(redis: Redis, record: ApiKey) -> TenantPolicy:
    data = cast(bytes, redis.hget(keys.policy_tenants(), str(record.tenant_id)))
    return decode_tenant(data)


def a_pool(name: str) -> Pool:
    return Pool.objects.create(name=name)


def written_version(redis: Redis) -> str:
    return cast(bytes, redis.get(keys.policy_version())).decode()


def test_a_new_key_is_in_the_snapshot_after_the_commit(policy_redis: Redis, acme: Project) -> None:
    with transaction.atomic():
        issued = issue_api_key(acme, name="staging")
        assert written_key(policy_redis, issued.record) is None
    written = written_key(policy_redis, issued.record)
    assert written is not None
    assert written.tenant_id == str(acme.tenant_id)
    assert written_tenant(policy_redis, issued.record).tier.name == "premium"
    assert written.refusal is None
    assert written.key_id == str(issued.record.id)
    assert written_version(policy_redis) == str(PolicyVersion.objects.get())


def test_a_revoked_key_keeps_no_more_than_that_it_is(policy_redis: Redis, acme: Project) -> None:
    issued = issue_api_key(acme, allowed_networks=[f"10.{n}.0.0/16" for n in range(100)])
    before = len(cast(bytes, policy_redis.hget(keys.policy_api_keys(), issued.record.public_id)))
    revoke_api_key(issued.record)
    written = written_key(policy_redis, issued.record)
    assert written is not None
    assert written.refusal == "This API key has been revoked."
    assert (written.networks, written.scopes, written.limits) == (None, [], [])
    row = cast(bytes, policy_redis.hget(keys.policy_api_keys(), issued.record.public_id))
    assert len(row) < 250 < before


def test_every_pool_is_known_and_stays_so(policy_redis: Redis, acme: Project) -> None:
    """What was used of one that is no more is still to be collected."""
    idle, used = a_pool("idle"), a_pool("used")
    ServedModel.objects.create(name="one", pool=used, context_tokens=1, is_enabled=False)
    assert policy_redis.smembers(keys.known_pools()) == {b"idle", b"used"}
    idle.delete()
    assert policy_redis.smembers(keys.known_pools()) == {b"idle", b"used"}
    policy_redis.flushdb()
    writer.rebuild_policy()
    assert policy_redis.smembers(keys.known_pools()) == {b"used"}


def test_the_key_itself_is_stored_nowhere(policy_redis: Redis, acme: Project) -> None:
    issued = issue_api_key(acme)
    secret = issued.key.split("-")[2].encode()
    snapshot = cast(dict[bytes, bytes], policy_redis.hgetall(keys.policy_api_keys()))
    assert all(secret not in value for value in snapshot.values())
    row = ApiKey.objects.filter(id=issued.record.id).values().get()
    assert all(secret.decode() not in str(value) for value in row.values())


def test_a_rolled_back_change_leaves_no_trace(policy_redis: Redis, acme: Project) -> None:
    before = written_version(policy_redis)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        record = issue_api_key(acme).record
        raise ZeroDivisionError
    assert written_version(policy_redis) == before
    assert written_key(policy_redis, record) is None


def test_a_revoked_key_stays_in_the_snapshot_with_a_refusal(
    policy_redis: Redis, acme: Project
) -> None:
    record = issue_api_key(acme).record
    first = record.revoke()
    assert record.revoke() == first
    written = written_key(policy_redis, record)
    assert written is not None
    assert written.refusal == "This API key has been revoked."


def test_a_suspended_tenant_is_refused_and_the_other_is_not(
    policy_redis: Redis, acme: Project, globex: Project
) -> None:
    ours, theirs = (issue_api_key(project).record for project in (acme, globex))
    Tenant.objects.filter(id=acme.tenant_id).update(is_suspended=True)
    assert "suspended" in (written_tenant(policy_redis, ours).refusal or "")
    assert written_tenant(policy_redis, theirs).refusal is None


def test_a_changed_tier_reaches_every_tenant_of_it(policy_redis: Redis, acme: Project) -> None:
    record = issue_api_key(acme).record
    tier = Tier.objects.get(name="premium")
    tier.requests_per_minute = 7
    tier.save()
    assert written_tenant(policy_redis, record).tier.requests_per_minute == 7


def test_every_key_of_a_project_has_its_choice_at_saturation(
    policy_redis: Redis, acme: Project
) -> None:
    ServedModel.objects.create(name="small", pool=a_pool("pool-a"), context_tokens=4096)
    record = issue_api_key(acme).record
    written = written_key(policy_redis, record)
    assert written is not None
    assert (written.on_saturation, written.smaller_model) == (OnSaturation.WAIT, "")
    change_project(acme, on_saturation="smaller_model", smaller_model="small")
    written = written_key(policy_redis, record)
    assert written is not None
    assert (written.on_saturation, written.smaller_model) == (OnSaturation.SMALLER_MODEL, "small")


def test_models_follow_the_catalogue_and_who_may_see_them(
    policy_redis: Redis, acme: Project
) -> None:
    model = ServedModel.objects.create(name="org/model", pool=a_pool("pool-a"), context_tokens=4096)
    written = written_model(policy_redis, "org/model")
    assert written is not None and written.tenant_ids is None and written.pool == "pool-a"
    model.tenants.add(acme.tenant)
    written = written_model(policy_redis, "org/model")
    assert written is not None and written.tenant_ids == [str(acme.tenant_id)]
    model.is_enabled = False
    model.save()
    assert written_model(policy_redis, "org/model") is None


def test_deleted_in_bulk_is_gone_from_the_snapshot(policy_redis: Redis, acme: Project) -> None:
    pool = a_pool("p")
    ServedModel.objects.bulk_create(
        [ServedModel(name=f"m{number}", pool=pool, context_tokens=1) for number in range(3)]
    )
    assert policy_redis.hlen(keys.policy_models()) == 3
    ServedModel.objects.all().delete()
    assert policy_redis.hlen(keys.policy_models()) == 0


def test_the_reconciler_brings_back_what_redis_lost(policy_redis: Redis, acme: Project) -> None:
    record = issue_api_key(acme).record
    assert writer.reconcile_policy() is False
    policy_redis.flushall()
    assert writer.reconcile_policy() is True
    assert written_key(policy_redis, record) is not None
    assert writer.reconcile_policy() is False


def test_the_reconciler_replaces_the_snapshot_of_another_database(
    policy_redis: Redis, acme: Project
) -> None:
    # A higher number alone must not win: a restored backup counts from a lower one.
    policy_redis.set(keys.policy_version(), "999999-deadbeef")
    policy_redis.hset(keys.policy_api_keys(), "stranger", b"left over")
    assert writer.reconcile_policy() is True
    assert not policy_redis.hexists(keys.policy_api_keys(), "stranger")


def test_a_change_is_kept_while_redis_is_down(
    policy_redis: Redis, acme: Project, settings: Settings
) -> None:
    url = settings.PENSTOCK_DISPATCH_REDIS_URL
    settings.PENSTOCK_DISPATCH_REDIS_URL = f"redis://127.0.0.1:{free_port()}"
    record = issue_api_key(acme).record
    settings.PENSTOCK_DISPATCH_REDIS_URL = url
    assert ApiKey.objects.filter(id=record.id).exists()
    assert written_key(policy_redis, record) is None
    assert writer.reconcile_policy() is True
    assert written_key(policy_redis, record) is not None


def test_rebuilding_writes_even_where_the_version_matches(
    policy_redis: Redis, acme: Project
) -> None:
    record = issue_api_key(acme).record
    policy_redis.delete(keys.policy_api_keys())
    assert writer.rebuild_policy() == written_version(policy_redis)
    assert written_key(policy_redis, record) is not None


@pytest.mark.django_db
def test_a_model_of_one_tenant_is_never_left_to_everybody() -> None:
    ensure_default_tiers()
    tenant = Tenant.objects.create(name="Initech", tier=Tier.objects.get(name="free"))
    model = ServedModel.objects.create(name="private", pool=a_pool("private"), context_tokens=1)
    model.tenants.add(tenant)
    with pytest.raises(ProtectedError):
        tenant.delete()
    assert model.to_policy().tenant_ids == [str(tenant.id)]
