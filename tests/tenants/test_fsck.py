"""fsck finds what was changed behind the back of the policy writer."""

import io
import json
from collections.abc import Callable, Iterator, Sequence

import psycopg
import pytest
from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from django.core.management import CommandError, call_command
from redis import Redis
from structlog.testing import capture_logs

from gpu_workers.protocol import keys
from tenants.access.api_keys import issue_api_key
from tenants.fsck import (
    Finding,
    by_tenant,
    in_slices,
    register,
    run_checks,
    whole,
)
from tenants.models import ApiKey, Project
from tenants.tasks import check_everything
from tests.support.commands import run

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
        (
            copy_of_another_row,
            "Redis has another project_name, refusal, scopes than the database",
        ),
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
    assert run("fsck")["findings"] == []
    policy_redis.delete(keys.policy_api_keys())
    out = io.StringIO()
    with pytest.raises(CommandError) as failed:
        call_command("fsck", "--json", stdout=out)
    assert failed.value.returncode == 1
    (finding,) = json.loads(out.getvalue())["findings"]
    assert api_key.public_id in finding["problem"]


def test_each_finding_is_told_before_the_next_check_begins(
    api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = io.StringIO()
    told_before: list[str] = []

    def the_second() -> Iterator[str]:
        told_before.append(out.getvalue())
        return iter(())

    monkeypatch.setattr("tenants.fsck.checks", {})
    register("a", whole(lambda: ["Account 7 does not balance."]))
    register("b", whole(the_second))
    with pytest.raises(CommandError):
        call_command("fsck", stdout=out)
    assert told_before == ["a: Account 7 does not balance.\n"]


def test_a_night_that_is_cut_short_says_so_and_has_lost_nothing(
    api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless() -> Iterator[str]:
        yield "Account 7 does not balance."
        raise SoftTimeLimitExceeded

    monkeypatch.setattr("tenants.fsck.checks", {})
    register("ledger", whole(endless))
    with capture_logs() as logs, pytest.raises(SoftTimeLimitExceeded):
        check_everything()
    assert [(line["event"], line.get("problem")) for line in logs] == [
        ("fsck_found_a_problem", "Account 7 does not balance."),
        ("fsck_was_cut_short", None),
    ]
    assert logs[-1]["problems_until_then"] == 1


def test_an_app_adds_its_own_check(
    policy_redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenants.fsck.checks", {})
    register("ledger", whole(lambda: ["Account 7 does not balance."]))
    assert list(run_checks()) == [Finding(check="ledger", problem="Account 7 does not balance.")]


class Sliced:
    """A check of six slices, two at once, that is killed where it comes to one of them."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.killed_at: str | None = None
        self.slices = ["f", "a", "b", "e", "c", "d"]

    def __call__(self, slices: Sequence[str]) -> Iterator[str]:
        for each in slices:
            if each == self.killed_at:
                raise SoftTimeLimitExceeded
            self.seen.append(each)
            if each == "b":
                yield "b is wrong."

    def run(self, killed_at: str | None = None) -> str:
        self.seen, self.killed_at = [], killed_at
        found = [finding.problem for finding in run_checks()] if killed_at is None else []
        if killed_at is not None:
            with pytest.raises(SoftTimeLimitExceeded):
                list(run_checks())
        else:
            assert found == ["b is wrong."]
        return "".join(self.seen)


def test_a_check_in_slices_goes_on_where_it_was_killed_and_comes_to_all_of_them(
    api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenants.fsck.checks", {})
    check = Sliced()
    register("sliced", in_slices(check, lambda: check.slices, together=2))
    assert check.run() == "abcdef"
    assert check.run() == "abcdef"
    assert check.run(killed_at="d") == "abc"
    # What was half done is done again, and what was before it comes last.
    assert check.run() == "cdefab"
    assert check.run(killed_at="e") == "cd"
    check.slices = ["a", "b", "d1", "e", "f"]
    assert check.run(killed_at="a") == "d1ef"
    assert check.run() == "abd1ef"


def test_a_check_of_tenants_is_given_all_of_them(
    api_key: ApiKey, globex: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenants.fsck.checks", {})
    monkeypatch.setattr("tenants.fsck._TENANTS_TOGETHER", 1)
    given: list[Sequence[str]] = []

    def check(tenants: Sequence[str]) -> Iterator[str]:
        given.append(tenants)
        return iter(())

    register("tenants", by_tenant(check))
    assert list(run_checks()) == []
    assert given == [[str(each)] for each in sorted([api_key.tenant_id, globex.tenant_id])]
