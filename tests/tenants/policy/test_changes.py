"""Only what a change affects is written, in order, whoever writes at the same time."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, cast

import pytest
from django.db import connection, connections, transaction
from redis import Redis

from gpu_workers.protocol import keys, stream_fields
from gpu_workers.protocol.codec import decode_api_key, decode_policy_delta, decode_tenant
from gpu_workers.protocol.policy import LimitName, PolicyDelta
from tenants.access.api_keys import issue_api_key
from tenants.fsck import run_checks
from tenants.isolation.scoping import operator_scope, tenant_scope
from tenants.models import ApiKey, PolicyChange, PolicyVersion, Project, Quota, Tenant, Tier
from tenants.models.policy_change import MAX_ROWS, PolicyPart
from tenants.policy import writer
from tenants.policy.rows import AffectedRows, PolicyRow, affected_rows

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("operators_session"),
]
_T = TypeVar("_T")
JUNK = b"not touched"


@pytest.fixture(autouse=True)
def _empty_redis(policy_redis: Redis) -> None:
    """Every commit of these tests is written to it."""


def problems() -> list[str]:
    return [finding.problem for finding in run_checks()]


def written(redis: Redis, record: ApiKey) -> bytes:
    return cast(bytes, redis.hget(keys.policy_api_keys(), record.public_id))


def newest_delta(redis: Redis) -> PolicyDelta | None:
    entries = cast(list[tuple[bytes, dict[bytes, bytes]]], redis.xrevrange(keys.policy_deltas()))
    fields = entries[0][1] if entries else {}
    return (
        decode_policy_delta(fields[stream_fields.POLICY_DELTA_FIELD.encode()]) if fields else None
    )


def version_of(redis: Redis) -> str:
    return cast(bytes, redis.get(keys.policy_version())).decode()


def test_a_version_says_what_it_changed(policy_redis: Redis, acme: Project) -> None:
    record = issue_api_key(acme).record
    before = version_of(policy_redis)
    record.revoke()
    assert newest_delta(policy_redis) == PolicyDelta(
        base=before, version=version_of(policy_redis), api_keys=[record.public_id]
    )
    before = version_of(policy_redis)
    Tier.objects.filter(name="premium").update(weight=99)
    assert newest_delta(policy_redis) == PolicyDelta(
        base=before, version=version_of(policy_redis), tenants=[str(acme.tenant_id)]
    )


def test_a_keys_quota_reaches_the_rows_of_all_keys_that_count_into_it(
    policy_redis: Redis, acme: Project
) -> None:
    parent = issue_api_key(acme, scopes=["keys:write", "inference"]).record
    quota = Quota.objects.create(
        tenant=acme.tenant, api_key=parent, limit="tokens_per_day", value=500
    )
    child = issue_api_key(acme, by=ApiKey.objects.get(pk=parent.pk)).record
    quota.value = 400
    quota.save()
    row_before = written(policy_redis, child)
    row = decode_api_key(row_before)
    assert (row.account_id, [limit.value for limit in row.limits]) == (str(parent.pk), [400])
    assert problems() == []
    writer.rebuild_policy()
    assert written(policy_redis, child) == row_before


def test_a_whole_snapshot_and_very_many_rows_do_not_say_it(
    policy_redis: Redis, acme: Project
) -> None:
    issue_api_key(acme)
    said = newest_delta(policy_redis)
    Tenant.objects.bulk_create(
        [Tenant(name=f"t{number}", tier=acme.tenant.tier) for number in range(MAX_ROWS // 2)]
    )
    assert version_of(policy_redis) == str(PolicyVersion.current())
    assert newest_delta(policy_redis) == said
    policy_redis.set(keys.policy_version(), "1-of-another-database")
    assert writer.reconcile_policy() is True
    assert newest_delta(policy_redis) == said


def test_no_more_is_kept_of_what_versions_changed_than_gateways_read(
    policy_redis: Redis, acme: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "DELTAS_KEPT", 10)
    record = issue_api_key(acme).record
    for number in range(250):
        record.name = f"name {number}"
        record.save()
    # Redis forgets by pages of a hundred.
    assert policy_redis.xlen(keys.policy_deltas()) <= 120


def test_a_change_of_a_key_writes_its_row_and_no_other(policy_redis: Redis, acme: Project) -> None:
    ours, other = (issue_api_key(acme).record for _ in range(2))
    policy_redis.hset(keys.policy_api_keys(), other.public_id, JUNK)
    ours.revoke()
    assert decode_api_key(written(policy_redis, ours)).refusal is not None
    assert written(policy_redis, other) == JUNK


def test_a_projects_quota_reaches_its_keys_only(policy_redis: Redis, acme: Project) -> None:
    web = Project.objects.create(tenant=acme.tenant, name="web")
    ours, other = issue_api_key(web).record, issue_api_key(acme).record
    policy_redis.hset(keys.policy_api_keys(), other.public_id, JUNK)
    quota = Quota.objects.create(
        tenant=acme.tenant, project=web, limit=LimitName.TOKENS_PER_DAY, value=10
    )
    assert [
        limit.value for limit in decode_api_key(written(policy_redis, ours)).project_limits
    ] == [10]
    quota.delete()
    assert decode_api_key(written(policy_redis, ours)).project_limits == []
    assert written(policy_redis, other) == JUNK


def test_a_keys_quota_reaches_that_key_and_a_tenants_the_tenant(
    policy_redis: Redis, acme: Project
) -> None:
    key = issue_api_key(acme).record
    Quota.objects.create(tenant=acme.tenant, api_key=key, limit="tokens_per_day", value=3)
    Quota.objects.create(tenant=acme.tenant, limit="tokens_per_day", value=4)
    row = decode_api_key(written(policy_redis, key))
    tenant = decode_tenant(
        cast(bytes, policy_redis.hget(keys.policy_tenants(), str(acme.tenant_id)))
    )
    assert [limit.value for limit in row.limits] == [3]
    assert [limit.value for limit in tenant.limits] == [4]
    Quota.objects.filter(api_key=key).delete()
    assert decode_api_key(written(policy_redis, key)).limits == []


@pytest.mark.parametrize(
    ("operators", "members", "in_force"),
    [
        ((10, True), (5, True), (5, True)),
        ((10, True), (20, True), (10, True)),
        ((10, True), (5, False), (10, True)),
        ((10, False), (20, True), (20, True)),
        ((10, False), (5, False), (5, False)),
    ],
)
def test_of_the_operators_and_the_members_quota_the_stricter_is_in_force(
    operators: tuple[int, bool],
    members: tuple[int, bool],
    in_force: tuple[int, bool],
    policy_redis: Redis,
    acme: Project,
) -> None:
    issue_api_key(acme)
    for is_own, (value, is_hard) in enumerate((operators, members)):
        Quota.objects.create(
            tenant=acme.tenant,
            limit="tokens_per_day",
            value=value,
            is_hard=is_hard,
            is_own=bool(is_own),
        )
    row = cast(bytes, policy_redis.hget(keys.policy_tenants(), str(acme.tenant_id)))
    found = [(each.value, each.is_hard) for each in decode_tenant(row).limits]
    assert found == [in_force]


def test_a_tier_reaches_its_tenants_only(
    policy_redis: Redis, acme: Project, globex: Project
) -> None:
    policy_redis.hset(keys.policy_tenants(), str(globex.tenant_id), JUNK)
    Tier.objects.filter(name="premium").update(weight=99)
    rows = cast(dict[bytes, bytes], policy_redis.hgetall(keys.policy_tenants()))
    assert decode_tenant(rows[str(acme.tenant_id).encode()]).tier.weight == 99
    assert rows[str(globex.tenant_id).encode()] == JUNK


def test_what_is_deleted_leaves(policy_redis: Redis, acme: Project) -> None:
    records = [issue_api_key(acme).record for _ in range(3)]
    records[0].delete()
    ApiKey.objects.filter(id=records[1].id).delete()
    assert policy_redis.hkeys(keys.policy_api_keys()) == [records[2].public_id.encode()]


def test_the_last_use_of_a_key_is_no_change_of_the_policy(acme: Project) -> None:
    record = issue_api_key(acme).record
    before = str(PolicyVersion.current())
    ApiKey.objects.filter(id=record.id).update(last_used_at=record.created_at)
    assert str(PolicyVersion.current()) == before


def test_a_tenants_own_change_is_written_too(policy_redis: Redis, acme: Project) -> None:
    with tenant_scope(acme.tenant_id):
        record = issue_api_key(acme).record
    assert decode_api_key(written(policy_redis, record)).tenant_id == str(acme.tenant_id)


def test_a_change_of_very_many_rows_writes_the_whole(
    policy_redis: Redis, acme: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenants.models.policy_change.MAX_ROWS", 20)
    tier = acme.tenant.tier
    tenants = [Tenant(name=f"t{number}", tier=tier) for number in range(21)]
    Tenant.objects.bulk_create(tenants)
    newest = PolicyChange.objects.order_by("-version")[0]
    assert (newest.part, newest.row_ids) == (PolicyPart.EVERYTHING, [])
    assert policy_redis.hlen(keys.policy_tenants()) == len(tenants) + 1
    assert problems() == []


def test_an_overtaken_writer_starts_again(
    policy_redis: Redis,
    acme: Project,
    monkeypatch: pytest.MonkeyPatch,
    elsewhere: Callable[[Callable[[], object]], object],
) -> None:
    record = issue_api_key(acme).record
    read = affected_rows
    overtaking, networks = iter([True]), ["10.0.0.0/8"]

    def read_and_be_overtaken(changes: list[PolicyChange]) -> AffectedRows:
        rows = read(changes)  # without the networks
        if next(overtaking, False):
            elsewhere(bind)
            assert decode_api_key(written(policy_redis, record)).networks == networks
        return rows

    def bind() -> None:
        key = ApiKey.objects.get(id=record.id)
        key.allowed_networks = networks
        key.save(update_fields=["allowed_networks"])

    monkeypatch.setattr(writer, "affected_rows", read_and_be_overtaken)
    record.scopes = ["inference", "usage:read"]
    record.save(update_fields=["scopes"])
    row = decode_api_key(written(policy_redis, record))
    assert row.networks == networks and len(row.scopes) == 2
    assert problems() == []


def test_a_long_transaction_keeps_nobody_waiting(
    policy_redis: Redis, acme: Project, elsewhere: Callable[[Callable[[], object]], object]
) -> None:
    record = issue_api_key(acme).record
    with transaction.atomic():
        ours = issue_api_key(acme).record
        elsewhere(lambda: ApiKey.objects.get(id=record.id).revoke())
        assert decode_api_key(written(policy_redis, record)).refusal is not None
        assert not policy_redis.hexists(keys.policy_api_keys(), ours.public_id)
    assert policy_redis.hexists(keys.policy_api_keys(), ours.public_id)
    assert problems() == []


def test_writers_at_the_same_time_leave_the_snapshot_equal(acme: Project) -> None:
    records = [issue_api_key(acme).record for _ in range(4)]

    def toggle(record: ApiKey) -> None:
        try:
            for number in range(10):
                with operator_scope("test"):
                    Quota.objects.update_or_create(
                        tenant_id=acme.tenant_id,
                        api_key_id=record.id,
                        limit="tokens_per_day",
                        defaults={"value": number + 1},
                    )
                    Tenant.objects.filter(id=acme.tenant_id).update(is_suspended=number % 2 == 0)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(toggle, record) for record in records]:
            done.result(timeout=60)
    writer.reconcile_policy()
    assert problems() == []


def test_a_rewrite_is_never_visible_half(
    policy_redis: Redis,
    acme: Project,
    monkeypatch: pytest.MonkeyPatch,
    elsewhere: Callable[[Callable[[], object]], object],
) -> None:
    records = [issue_api_key(acme).record for _ in range(3)]
    seen: list[int] = []

    def read_slowly(rows: Iterable[PolicyRow]) -> Iterator[PolicyRow]:
        yield from rows
        seen.append(policy_redis.hlen(keys.policy_api_keys()))
        # A change that commits meanwhile must not be lost with the hash it was written to.
        elsewhere(lambda: ApiKey.objects.get(id=records[len(seen)].id).revoke())

    for name in ("api_key_rows", "tenant_rows"):
        read = getattr(writer, name)
        monkeypatch.setattr(writer, name, lambda read=read: read_slowly(read()))
    writer.rebuild_policy()
    assert seen == [3, 3]
    assert [
        decode_api_key(written(policy_redis, record)).refusal is None for record in records
    ] == [
        True,
        False,
        False,
    ]
    assert problems() == []


def test_only_one_process_rewrites_at_a_time(
    policy_redis: Redis, acme: Project, elsewhere: Callable[[Callable[[], bool]], bool]
) -> None:
    policy_redis.flushall()
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", [writer.REWRITE_LOCK])
        assert elsewhere(writer.reconcile_policy) is False
    assert elsewhere(writer.reconcile_policy) is True


def test_a_snapshot_that_fell_behind_is_caught_up_by_its_rows(
    policy_redis: Redis, acme: Project
) -> None:
    record, other = (issue_api_key(acme).record for _ in range(2))
    earlier = cast(bytes, policy_redis.get(keys.policy_version()))
    row = written(policy_redis, record)
    record.revoke()
    # As a replica that took over without the last write.
    policy_redis.set(keys.policy_version(), earlier)
    policy_redis.hset(keys.policy_api_keys(), record.public_id, row)
    policy_redis.hset(keys.policy_api_keys(), other.public_id, JUNK)
    assert writer.reconcile_policy() is True
    assert decode_api_key(written(policy_redis, record)).refusal is not None
    assert written(policy_redis, other) == JUNK


def test_a_restored_backup_is_told_from_the_history_after_it(
    policy_redis: Redis, acme: Project
) -> None:
    record = issue_api_key(acme).record
    number = str(PolicyVersion.current()).partition("-")[0]
    # The same number of changes, but others than this database knows.
    policy_redis.set(keys.policy_version(), f"{number}-0badcafe")
    policy_redis.hset(keys.policy_api_keys(), "lost", b"a key that the backup does not have")
    record.revoke()
    assert policy_redis.hkeys(keys.policy_api_keys()) == [record.public_id.encode()]


def test_old_notes_are_forgotten_and_the_snapshot_is_then_written_whole(
    policy_redis: Redis, acme: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cast(bytes, policy_redis.get(keys.policy_version()))
    for _ in range(3):
        issue_api_key(acme)
    monkeypatch.setattr(writer, "CHANGES_KEPT", 1)
    assert writer.delete_old_changes() > 0
    policy_redis.set(keys.policy_version(), first)
    policy_redis.hset(keys.policy_api_keys(), "lost", JUNK)
    assert writer.reconcile_policy() is True
    assert problems() == []
