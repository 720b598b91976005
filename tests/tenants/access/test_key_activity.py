"""What gateways tell of keys arrives in PostgreSQL."""

from datetime import UTC, datetime, timedelta

import pytest
from pytest_django import Settings
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.codec import decode_api_key
from tenants import key_format
from tenants.access.api_keys import issue_api_key, rotate_api_key
from tenants.access.key_activity import adopt_new_digests, collect_key_uses
from tenants.models import ApiKey, PolicyVersion, Project

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("operators_session", "policy_redis"),
]
AT = datetime(2026, 5, 1, 12, 0, 30, tzinfo=UTC)
NEW_PEPPER = b"the pepper of this year, long enough"


def tell_use(redis: Redis, record: ApiKey, text: str) -> None:
    redis.hset(keys.policy_key_uses(), record.public_id, text)


def milliseconds(moment: datetime) -> str:
    return str(int(moment.timestamp() * 1000))


def test_the_last_use_is_kept_and_is_no_change_of_the_policy(
    policy_redis: Redis, acme: Project
) -> None:
    used, other = (issue_api_key(acme).record for _ in range(2))
    version = str(PolicyVersion.current())
    tell_use(policy_redis, used, milliseconds(AT))
    policy_redis.hset(keys.policy_key_uses(), "unknown", milliseconds(AT))
    assert collect_key_uses() == 1
    # Another gateway's news may be older.
    tell_use(policy_redis, used, milliseconds(AT - timedelta(minutes=1)))
    tell_use(policy_redis, other, "9" * 30)
    assert collect_key_uses() == 0
    for record in (used, other):
        record.refresh_from_db()
    assert (used.last_used_at, other.last_used_at) == (AT, None)
    assert str(PolicyVersion.current()) == version
    assert not policy_redis.exists(keys.policy_key_uses())


def test_a_key_moves_to_the_new_pepper_once_it_was_used(
    policy_redis: Redis, acme: Project, settings: Settings
) -> None:
    issued = issue_api_key(acme)
    before, settings.PENSTOCK_API_KEY_PEPPER = settings.PENSTOCK_API_KEY_PEPPER, NEW_PEPPER
    digests = key_format.digest(issued.key, before) + key_format.digest(issued.key, NEW_PEPPER)
    policy_redis.hset(keys.policy_new_digests(), issued.record.public_id, digests)
    assert adopt_new_digests() == 1
    assert ApiKey.objects.find(issued.key) == issued.record
    row = policy_redis.hget(keys.policy_api_keys(), issued.record.public_id)
    assert isinstance(row, bytes)
    assert decode_api_key(row).digests[0].digest == key_format.digest(issued.key, NEW_PEPPER)
    assert adopt_new_digests() == 0


def test_a_digest_from_before_a_rotation_changes_nothing(
    policy_redis: Redis, acme: Project, settings: Settings
) -> None:
    issued = issue_api_key(acme)
    before = settings.PENSTOCK_API_KEY_PEPPER
    stale = key_format.digest(issued.key, before) + key_format.digest(issued.key, NEW_PEPPER)
    new = rotate_api_key(issued.record, overlap=timedelta(0))
    for value in (stale, b"short", b""):
        policy_redis.hset(keys.policy_new_digests(), issued.record.public_id, value)
        assert adopt_new_digests() == 0
    assert ApiKey.objects.find(new) == issued.record
