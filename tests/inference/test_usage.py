"""The collector, against a real PostgreSQL and Redis."""

import threading
import uuid
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest
from django.db import OperationalError, connection
from redis import Redis

from gpu_workers.protocol import keys
from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.messages import Api, Outcome, TokenUsage, UsageEntry
from gpu_workers.protocol.policy import ModelPolicy
from gpu_workers.protocol.request_id import new_request_id
from inference import metering
from inference.metering import UsageCollector
from inference.models import UsageQuarantine, UsageRecord
from inference.usage_intake import StreamEntry, record_entries
from tenants.default_tiers import ensure_default_tiers
from tenants.models import ApiKey, Project, Tenant, Tier
from tests.polling import eventually_sync

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("operators_session"),
]
POOL = "usage-tests"


@pytest.fixture
def redis(dispatch_redis_url: str) -> Iterator[Redis]:
    with Redis.from_url(dispatch_redis_url) as client:
        client.flushall()
        client.sadd(keys.known_pools(), POOL)
        yield client


@pytest.fixture
def api_key(redis: Redis, operators_session: None) -> ApiKey:
    return make_key("Acme")


def make_key(tenant_name: str) -> ApiKey:
    ensure_default_tiers()
    tenant = Tenant.objects.create(name=tenant_name, tier=Tier.objects.get(name="premium"))
    project = Project.objects.create(tenant=tenant)
    return ApiKey.objects.issue(project).record


def usage_entry(api_key: ApiKey, **changes: Any) -> UsageEntry:
    entry = UsageEntry(
        request_id=new_request_id(),
        tenant_id=str(api_key.project.tenant_id),
        project_id=str(api_key.project_id),
        api_key_id=str(api_key.id),
        tier="premium",
        pool=POOL,
        model="penstock-demo",
        api=Api.CHAT_COMPLETIONS,
        stream=True,
        attempt=1,
        worker_id="w#1",
        outcome=Outcome.COMPLETED,
        finish_reason="stop",
        error_code=None,
        usage=TokenUsage(prompt_tokens=11, cached_tokens=4, completion_tokens=7),
        arrived_at_ms=1_790_000_000_123,
        finished_at_ms=1_790_000_001_456,
        queue_ms=3,
        ttft_ms=21,
    )
    return msgspec.structs.replace(entry, **changes)


def append(redis: Redis, *entries: UsageEntry, pool: str = POOL) -> None:
    for entry in entries:
        redis.xadd(keys.pool_usage(pool), {keys.USAGE_FIELD: encode(entry)})


def waiting(redis: Redis, pool: str = POOL) -> int:
    """What is left in the stream, and what was read and not acknowledged."""
    pending = cast(dict[str, int], redis.xpending(keys.pool_usage(pool), keys.USAGE_CONSUMER_GROUP))
    return redis.xlen(keys.pool_usage(pool)) + int(pending["pending"])


def test_an_entry_becomes_a_record_with_the_engines_counts(redis: Redis, api_key: ApiKey) -> None:
    entry = usage_entry(api_key)
    append(redis, entry)
    assert UsageCollector(redis).drain() == 1
    record = UsageRecord.objects.get()
    assert record.request_id == uuid.UUID(entry.request_id)
    assert (record.tenant_id, record.api_key_id) == (api_key.project.tenant_id, api_key.id)
    assert (record.prompt_tokens, record.cached_tokens, record.completion_tokens) == (11, 4, 7)
    assert record.total_tokens == 18
    assert (record.outcome, record.finish_reason, record.api) == (
        "completed",
        "stop",
        "chat.completions",
    )
    assert record.arrived_at.timestamp() == pytest.approx(1_790_000_000.123)
    assert (record.queue_ms, record.ttft_ms) == (3, 21)
    assert waiting(redis) == 0


def test_an_entry_that_comes_twice_is_one_record(redis: Redis, api_key: ApiKey) -> None:
    entry = usage_entry(api_key)
    append(redis, entry, entry)
    UsageCollector(redis).drain()
    append(redis, entry)
    UsageCollector(redis).drain()
    assert UsageRecord.objects.count() == 1
    assert waiting(redis) == 0


def test_what_an_operator_ran_once_more_is_nobodys_usage(redis: Redis, api_key: ApiKey) -> None:
    append(redis, usage_entry(api_key, is_billed=False), usage_entry(api_key))
    UsageCollector(redis).drain()
    assert UsageRecord.objects.count() == 1
    assert waiting(redis) == 0


def test_more_than_one_batch_is_drained(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metering, "BATCH", 10)
    append(redis, *(usage_entry(api_key) for _ in range(35)))
    assert UsageCollector(redis).drain() == 35
    assert UsageRecord.objects.count() == 35


def test_what_a_dead_consumer_left_unfinished_is_taken_over(redis: Redis, api_key: ApiKey) -> None:
    append(redis, usage_entry(api_key), usage_entry(api_key))
    stream = keys.pool_usage(POOL)
    redis.xgroup_create(stream, keys.USAGE_CONSUMER_GROUP, id="0")
    redis.xreadgroup(keys.USAGE_CONSUMER_GROUP, "died", {stream: ">"})
    assert waiting(redis) == 4
    assert UsageCollector(redis).drain() == 2
    assert UsageRecord.objects.count() == 2
    assert waiting(redis) == 0


def test_a_commit_that_was_not_acknowledged_is_harmless(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies between PostgreSQL's commit and Redis' acknowledgement."""
    append(redis, usage_entry(api_key))

    def die(_self: Redis, **_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(Redis, "pipeline", die)
        UsageCollector(redis).drain()
    assert UsageRecord.objects.count() == 1
    UsageCollector(redis).drain()
    assert UsageRecord.objects.count() == 1
    assert waiting(redis) == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tenant_id": str(uuid.uuid4())}, "no API key"),
        ({"api_key_id": str(uuid.uuid4())}, "no API key"),
        ({"request_id": "not-a-uuid"}, "badly formed"),
        ({"pool": "another"}, "names the pool 'another'"),
        ({"finished_at_ms": 10**18}, ""),
        ({"model": "m" * 300}, "too long"),
        ({"worker_id": "nul\0"}, "NUL"),
        ({"usage": TokenUsage(prompt_tokens=-1)}, "check constraint"),
        ({"usage": TokenUsage(prompt_tokens=2**40)}, "out of range"),
    ],
)
def test_an_entry_that_can_be_no_record_is_kept_in_quarantine(
    redis: Redis, api_key: ApiKey, changes: dict[str, Any], reason: str
) -> None:
    good, bad = usage_entry(api_key), usage_entry(api_key, **changes)
    append(redis, bad, good)
    assert UsageCollector(redis).drain() == 2
    assert UsageRecord.objects.get().request_id == uuid.UUID(good.request_id)
    row = UsageQuarantine.objects.get()
    assert bytes(row.entry) == encode(bad)
    assert reason in row.reason
    assert waiting(redis) == 0


def test_bytes_of_another_version_are_kept_in_quarantine(redis: Redis, api_key: ApiKey) -> None:
    redis.xadd(keys.pool_usage(POOL), {keys.USAGE_FIELD: b"\xc1 no msgpack"})
    redis.xadd(keys.pool_usage(POOL), {"other": b"field"})
    UsageCollector(redis).drain()
    first, second = UsageQuarantine.objects.order_by("id")
    assert bytes(first.entry) == b"\xc1 no msgpack"
    assert b"other" in bytes(second.entry)
    assert waiting(redis) == 0


def test_one_tenants_key_cannot_be_billed_to_another(redis: Redis, api_key: ApiKey) -> None:
    other = make_key("Globex")
    append(redis, usage_entry(api_key, tenant_id=str(other.project.tenant_id)))
    UsageCollector(redis).drain()
    assert not UsageRecord.objects.exists()
    assert UsageQuarantine.objects.count() == 1


def test_requests_that_expired_in_a_pool_without_workers_are_on_record(
    redis: Redis, api_key: ApiKey
) -> None:
    model = ModelPolicy(
        name="cold", pool="cold", context_tokens=1, created_at=0, owned_by="penstock"
    )
    redis.hset(keys.policy_models(), "cold", encode(model))
    entry = usage_entry(
        api_key, pool="cold", outcome=Outcome.EXPIRED, attempt=0, worker_id=None, ttft_ms=None
    )
    append(redis, entry, pool="cold")
    UsageCollector(redis).drain()
    assert UsageRecord.objects.get().outcome == "expired"


class TestRunning:
    """The collector as a process: in a thread here, with its own connection."""

    @pytest.fixture
    def collector(self, redis: Redis, api_key: ApiKey) -> Iterator[None]:
        stop = threading.Event()

        def run() -> None:
            try:
                UsageCollector(redis).run(stop)
            finally:
                connection.close()

        thread = threading.Thread(target=run)
        thread.start()
        yield
        stop.set()
        thread.join(timeout=10)
        assert not thread.is_alive()

    @pytest.mark.usefixtures("collector")
    def test_a_new_pool_is_found_while_running(self, redis: Redis, api_key: ApiKey) -> None:
        redis.sadd(keys.known_pools(), "brand-new")
        append(redis, usage_entry(api_key, pool="brand-new"), pool="brand-new")
        eventually_sync(lambda: UsageRecord.objects.filter(pool="brand-new").exists(), 2.0)

    @pytest.mark.usefixtures("collector")
    def test_a_redis_that_came_back_empty_is_read_again(
        self, redis: Redis, api_key: ApiKey
    ) -> None:
        append(redis, usage_entry(api_key))
        eventually_sync(lambda: UsageRecord.objects.count() == 1)
        redis.flushall()
        redis.sadd(keys.known_pools(), POOL)
        append(redis, usage_entry(api_key))
        eventually_sync(lambda: UsageRecord.objects.count() == 2)

    def test_an_outage_of_postgresql_loses_nothing(
        self, redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch, collector: None
    ) -> None:
        refused = threading.Event()
        is_down = threading.Event()
        is_down.set()

        def sometimes(entries: list[StreamEntry]) -> None:
            if is_down.is_set():
                refused.set()
                raise OperationalError("the database is gone")
            record_entries(entries)

        monkeypatch.setattr(metering, "record_entries", sometimes)
        append(redis, usage_entry(api_key), usage_entry(api_key))
        assert refused.wait(timeout=5)
        assert UsageRecord.objects.count() == 0
        is_down.clear()
        eventually_sync(lambda: UsageRecord.objects.count() == 2)
        eventually_sync(lambda: waiting(redis) == 0)
