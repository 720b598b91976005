"""Budgets come back from the records, before the snapshot lets anybody in."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.messages import Api, Outcome
from gpu_workers.protocol.request_id import new_request_id
from inference.models import UsageRecord
from inference.operations import budgets
from inference.operations.budgets import rebuild_budgets
from tenants.access.api_keys import issue_api_key
from tenants.access.default_tiers import ensure_default_tiers
from tenants.billing.ledger.posting import UsageCharge, post_usage
from tenants.models import ApiKey, Project, Quota, Tenant, Tier
from tenants.policy import writer

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("operators_session"),
]
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
YESTERDAY = NOW - timedelta(days=1)
MODEL = "penstock-demo"


@pytest.fixture
def api_key(operators_session: None) -> ApiKey:
    ensure_default_tiers()
    tenant = Tenant.objects.create(name="Acme", tier=Tier.objects.get(name="premium"))
    return issue_api_key(Project.objects.create(tenant=tenant)).record


@pytest.fixture
def redis(dispatch_redis_url: str, api_key: ApiKey) -> Iterator[Redis]:
    """Empty again: making the key has written the snapshot."""
    with Redis.from_url(dispatch_redis_url) as redis:
        redis.flushdb()
        yield redis


def record(
    api_key: ApiKey, arrived_at: datetime = NOW, outcome: Outcome = Outcome.COMPLETED
) -> None:
    UsageRecord.objects.create(
        request_id=uuid.UUID(new_request_id()),
        tenant_id=api_key.tenant_id,
        project_id=api_key.project_id,
        api_key=api_key,
        tier="premium",
        pool="pool",
        model=MODEL,
        api=Api.CHAT_COMPLETIONS.value,
        stream=True,
        attempt=1,
        outcome=outcome.value,
        prompt_tokens=100,
        cached_tokens=40,
        completion_tokens=10,
        arrived_at=arrived_at,
        finished_at=arrived_at,
        cost_nanos=0 if outcome is Outcome.REFUSED else 150_000,
    )


def counters(redis: Redis, api_key: ApiKey) -> tuple[dict[str, int], dict[str, int]]:
    """Of the day and of the month, by owner and unit, the ids left out."""
    tenant_id = str(api_key.tenant_id)
    day = redis.hgetall(keys.tenant_day(tenant_id, int(NOW.timestamp()) // 86_400))
    month = redis.hgetall(keys.tenant_month(tenant_id, 202611))
    return _named(day), _named(month)


def _named(counts: object) -> dict[str, int]:
    named: dict[str, int] = {}
    for field, count in cast(dict[bytes, bytes], counts).items():
        words = field.decode().split(":")
        named[":".join(word for word in words if len(word) < 30)] = int(count)
    return named


def test_day_and_month_are_counted_for_key_project_and_tenant(
    redis: Redis, api_key: ApiKey
) -> None:
    record(api_key)
    record(api_key, YESTERDAY)
    record(api_key, NOW - timedelta(days=30))
    assert rebuild_budgets(redis, NOW) == 1
    day, month = counters(redis, api_key)
    assert day == {
        "key": 110, "project": 110, "tenant": 110,
        "key:nanos": 150_000, "project:nanos": 150_000, "tenant:nanos": 150_000,
    }  # fmt: skip
    nanos = 2 * 150_000
    assert month == {
        "key:tokens": 220, "project:tokens": 220, "tenant:tokens": 220,
        "key:nanos": nanos, "project:nanos": nanos, "tenant:nanos": nanos,
    }  # fmt: skip


def test_what_a_family_of_keys_used_comes_back_at_the_key_that_it_counts_into(
    redis: Redis, api_key: ApiKey
) -> None:
    Quota.objects.create(
        tenant_id=api_key.tenant_id, api_key=api_key, limit="tokens_per_day", value=500
    )
    child = issue_api_key(api_key.project, by=ApiKey.objects.get(pk=api_key.pk)).record
    redis.flushdb()
    record(api_key)
    record(child)
    rebuild_budgets(redis, NOW)
    day = redis.hgetall(keys.tenant_day(str(api_key.tenant_id), int(NOW.timestamp()) // 86_400))
    counted = {field.decode(): int(count) for field, count in cast(dict[bytes, bytes], day).items()}
    assert counted[f"key:{api_key.pk}"] == 220
    assert f"key:{child.pk}" not in counted


def test_what_was_ever_spent_comes_back_from_the_ledger(redis: Redis, api_key: ApiKey) -> None:
    charge = UsageCharge(
        tenant_id=api_key.tenant_id, model=MODEL, day=NOW.date(), nanos=70, requests=1
    )
    post_usage([charge], batch_id=uuid.uuid4())
    balance = keys.tenant_balance(str(api_key.tenant_id))
    rebuild_budgets(redis, NOW)
    assert redis.hget(balance, "settled") == b"70"
    redis.hset(balance, "settled", "90")  # some of it is on its way to the ledger
    rebuild_budgets(redis, NOW)
    assert redis.hget(balance, "settled") == b"90"


def test_what_was_never_run_counts_nothing(redis: Redis, api_key: ApiKey) -> None:
    record(api_key, outcome=Outcome.REFUSED)
    record(api_key, outcome=Outcome.EXPIRED)
    assert rebuild_budgets(redis, NOW) == 0
    record(api_key, outcome=Outcome.CANCELLED)
    rebuild_budgets(redis, NOW)
    assert counters(redis, api_key)[0]["tenant"] == 110


def test_rebuilding_twice_counts_once_and_adds_to_what_is_open(
    redis: Redis, api_key: ApiKey
) -> None:
    record(api_key)
    redis.hincrby(keys.tenant_month(str(api_key.tenant_id), 202611), "tenant:tokens", 5)
    assert rebuild_budgets(redis, NOW) == 1
    assert rebuild_budgets(redis, NOW) == 0
    assert counters(redis, api_key)[1]["tenant:tokens"] == 115


def test_the_snapshot_comes_back_after_the_budgets_and_only_to_an_empty_redis(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str | None] = []

    class Watched:
        """Which version of the snapshot is there while the budgets are rebuilt from records."""

        @property
        def objects(self) -> Any:
            seen.append(writer.written_version())
            return UsageRecord.objects

    monkeypatch.setattr(budgets, "UsageRecord", Watched())
    writer.rebuild_policy()
    assert seen == [None]
    writer.rebuild_policy()
    issue_api_key(api_key.project)
    writer.reconcile_policy()
    assert seen == [None]


def test_the_reconciler_rebuilds_them_after_a_loss(redis: Redis, api_key: ApiKey) -> None:
    record(api_key, datetime.now(UTC))
    writer.reconcile_policy()
    redis.flushdb()
    assert writer.reconcile_policy()
    day = int(datetime.now(UTC).timestamp()) // 86_400
    assert redis.hget(keys.tenant_day(str(api_key.tenant_id), day), "tenant") == b"110"
    assert budgets.rebuild_budgets(redis) == 0, "it was done before the snapshot"
