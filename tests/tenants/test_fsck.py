"""fsck finds what was changed behind the back of the policy writer."""

import io
import json
from collections.abc import Callable

import psycopg
import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from redis import Redis

from gpu_workers.protocol import keys
from tenants.access.api_keys import issue_api_key
from tenants.fsck import Finding, register_check, run_checks
from tenants.models import ApiKey, Project

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("operators_session"),
]


@pytest.fixture
def api_key(policy_redis: Redis, acme: Project) -> ApiKey:
    return issue_api_key(acme).record


def copy_of_another_row(redis: Redis, key: ApiKey) -> None:
    row = redis.hget(keys.policy_api_keys(), key.public_id)
    key.revoke()
    redis.hset(keys.policy_api_keys(), key.public_id, row)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (lambda redis, key: redis.hdel(keys.policy_api_keys(), key.public_id), "missing in Redis"),
        (lambda redis, key: redis.hset(keys.policy_api_keys(), "x", b""), "not in the database"),
        (
            lambda redis, key: redis.hset(keys.policy_tenants(), str(key.tenant_id), b"?"),
            "its row in Redis cannot be read",
        ),
        (copy_of_another_row, "Redis has another refusal than the database"),
        (lambda redis, key: redis.delete(keys.policy_version()), "snapshot is missing"),
        (lambda redis, key: redis.set(keys.policy_version(), "7-dead"), "is of version 7-dead"),
    ],
)
def test_a_snapshot_that_differs_is_told_row_by_row(
    policy_redis: Redis, api_key: ApiKey, spoil: Callable[[Redis, ApiKey], None], sentence: str
) -> None:
    assert list(run_checks()) == []
    spoil(policy_redis, api_key)
    findings = list(run_checks())
    assert [finding.check for finding in findings] == ["policy snapshot"]
    assert sentence in findings[0].problem


def test_a_version_that_somebody_set_by_hand_is_found(api_key: ApiKey) -> None:
    with psycopg.connect(settings.ENV.owner_database_url, autocommit=True) as owner:
        owner.execute("UPDATE tenants_policyversion SET version = version + 1")
    assert "policy version" in {finding.check for finding in run_checks()}


def test_a_table_without_its_wall_is_found(api_key: ApiKey) -> None:
    with psycopg.connect(settings.ENV.owner_database_url, autocommit=True) as owner:
        owner.execute("ALTER TABLE tenants_project NO FORCE ROW LEVEL SECURITY")
        try:
            assert [finding.check for finding in run_checks()] == ["tenant walls"]
        finally:
            owner.execute("ALTER TABLE tenants_project FORCE ROW LEVEL SECURITY")


def test_the_command_fails_where_something_is_wrong(policy_redis: Redis, api_key: ApiKey) -> None:
    out = io.StringIO()
    call_command("fsck", "--json", stdout=out)
    assert json.loads(out.getvalue())["findings"] == []
    policy_redis.delete(keys.policy_api_keys())
    out = io.StringIO()
    with pytest.raises(CommandError) as failed:
        call_command("fsck", "--json", stdout=out)
    assert failed.value.returncode == 1
    (finding,) = json.loads(out.getvalue())["findings"]
    assert api_key.public_id in finding["problem"]


def test_an_app_adds_its_own_check(
    policy_redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenants.fsck.checks", {})
    register_check("ledger", lambda: ["Account 7 does not balance."])
    assert list(run_checks()) == [Finding(check="ledger", problem="Account 7 does not balance.")]
