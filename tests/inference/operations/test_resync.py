"""Receipts for workers' outboxes, and what an emptied Redis waits for before anybody is let in."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from django.db import DatabaseError
from redis import Redis

from gpu_workers.protocol import keys, stream_fields
from gpu_workers.protocol.codec import encode
from gpu_workers.protocol.request_id import new_request_id
from inference import tasks
from inference.models import Gateway, Pool, UsageRecord, Worker
from inference.operations import resync
from inference.usage import collector
from inference.usage.collector import UsageCollector
from inference.usage.ingest import record_entries
from inference.usage.rows import StreamEntry
from tenants.models import ApiKey
from tenants.policy import writer
from tests.support.gateways.cast import a_worker_info
from tests.support.projects import make_key
from tests.support.usage_entries import POOL, usage_entry

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.usefixtures("operators_session"),
]
OUTBOX = "0123456789abcdef"


@pytest.fixture
def api_key(operators_session: None) -> ApiKey:
    return make_key("Acme")


@pytest.fixture
def lost_redis(dispatch_redis_url: str, api_key: ApiKey) -> Iterator[Redis]:
    """Empty again: making the key and the pool has written the snapshot."""
    Pool.objects.create(name=POOL)
    with Redis.from_url(dispatch_redis_url) as redis:
        redis.flushdb()
        yield redis


@pytest.fixture
def redis(lost_redis: Redis) -> Redis:
    """As collectors find it."""
    lost_redis.sadd(keys.known_pools(), POOL)
    return lost_redis


def append(redis: Redis, api_key: ApiKey, seq: int, request_id: str | None = None) -> str:
    """As a worker's outbox appends it."""
    entry = usage_entry(api_key, **({"request_id": request_id} if request_id else {}))
    fields: dict[Any, Any] = {
        stream_fields.USAGE_FIELD: encode(entry),
        stream_fields.OUTBOX_FIELD: f"{OUTBOX} {seq}",
    }
    redis.xadd(keys.pool_usage(POOL), fields)
    return entry.request_id


def receipts(redis: Redis) -> set[int]:
    return {int(seq) for seq in cast(set[bytes], redis.smembers(keys.pool_receipts(POOL, OUTBOX)))}


def test_what_is_committed_leaves_the_stream_with_a_receipt(redis: Redis, api_key: ApiKey) -> None:
    for seq in (1, 2, 7):
        append(redis, api_key, seq)
    assert UsageCollector(redis).drain() == 3
    assert receipts(redis) == {1, 2, 7}
    assert redis.ttl(keys.pool_receipts(POOL, OUTBOX)) > 86_400
    assert redis.xlen(keys.pool_usage(POOL)) == 0


def test_there_is_no_receipt_before_the_commit(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_entries: object) -> None:
        raise DatabaseError("PostgreSQL is away")

    append(redis, api_key, 1)
    with monkeypatch.context() as patch, pytest.raises(DatabaseError):
        patch.setattr(collector, "record_entries", fail)
        UsageCollector(redis).drain()
    assert receipts(redis) == set()
    assert redis.xlen(keys.pool_usage(POOL)) == 1
    UsageCollector(redis).drain()
    assert receipts(redis) == {1}


def test_an_entry_that_is_sent_again_is_recorded_once_and_has_its_receipt(
    redis: Redis, api_key: ApiKey
) -> None:
    request_id = append(redis, api_key, 1)
    UsageCollector(redis).drain()
    redis.delete(keys.pool_receipts(POOL, OUTBOX))
    append(redis, api_key, 1, request_id)
    UsageCollector(redis).drain()
    assert UsageRecord.objects.filter(request_id=uuid.UUID(request_id)).count() == 1
    assert receipts(redis) == {1}


def test_two_collectors_give_a_receipt_for_each_entry(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first dies between a commit and its acknowledgement."""

    def die_after_some(entries: list[StreamEntry]) -> None:
        record_entries(entries[:25])
        raise SystemExit

    for seq in range(40):
        append(redis, api_key, seq)
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(collector, "record_entries", die_after_some)
        UsageCollector(redis, consumer="one").drain()
    UsageCollector(redis, consumer="two").drain()
    assert UsageRecord.objects.count() == 40
    assert receipts(redis) == set(range(40))


def test_an_emptied_redis_waits_for_the_gateways_that_were_there(
    lost_redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost_redis.set(keys.policy_version(), "1")
    for gateway_id in ("one", "two", "dead"):
        lost_redis.sadd(keys.known_gateways(), gateway_id)
        lost_redis.set(keys.gateway_heartbeat(gateway_id), "1", ex=60)
    assert tasks.copy_gateways() == 3
    lost_redis.delete(keys.gateway_heartbeat("dead"))
    assert tasks.copy_gateways() == 2
    assert lost_redis.smembers(keys.known_gateways()) == {b"one", b"two"}
    lost_redis.flushdb()
    resync_gateway(lost_redis, "one")
    tasks.copy_gateways()
    monkeypatch.setattr(writer, "PRE_RESTORE_SECONDS", 0.3)
    with pytest.raises(writer.RestoreNotReady):
        writer.reconcile_policy()
    assert writer.written_version() is None, "nobody is let in"
    resync_gateway(lost_redis, "two")
    assert writer.reconcile_policy()
    assert writer.written_version() is not None


def resync_gateway(redis: Redis, gateway_id: str) -> None:
    redis.sadd(keys.gateways_resynced(), gateway_id)
    redis.expire(keys.gateways_resynced(), 600)


def see_worker(name: str) -> None:
    Worker.objects.sync([a_worker_info(f"{name}#1", pool=POOL)], now=datetime.now(UTC))


def test_an_emptied_redis_waits_for_the_workers_that_were_there(
    lost_redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_worker("one")
    see_worker("two")
    lost_redis.sadd(keys.pool_workers_resynced(POOL), "one")
    append(lost_redis, api_key, 1)
    monkeypatch.setattr(writer, "PRE_RESTORE_SECONDS", 0.3)
    with pytest.raises(writer.RestoreNotReady):
        writer.reconcile_policy()
    assert writer.written_version() is None, "nobody is let in"
    assert UsageRecord.objects.count() == 0
    lost_redis.sadd(keys.pool_workers_resynced(POOL), "two")
    assert writer.reconcile_policy()
    assert writer.written_version() is not None
    assert UsageRecord.objects.count() == 1


def test_what_was_resynced_counts_against_the_budgets(lost_redis: Redis, api_key: ApiKey) -> None:
    now = datetime.now(UTC)
    entry = usage_entry(
        api_key,
        request_id=new_request_id(),
        arrived_at_ms=int(now.timestamp() * 1000),
        finished_at_ms=int(now.timestamp() * 1000),
    )
    lost_redis.xadd(keys.pool_usage(POOL), {stream_fields.USAGE_FIELD: encode(entry)})
    assert writer.reconcile_policy()
    month = keys.tenant_month(str(api_key.tenant_id), now.year * 100 + now.month)
    assert lost_redis.hget(month, "tenant:tokens") == b"18"


def test_who_does_not_come_back_is_not_waited_for_for_ever(
    lost_redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    see_worker("gone")
    Gateway.objects.sync(["gone"])
    monkeypatch.setattr(resync, "TIMEOUT_SECONDS", 0.2)
    assert writer.reconcile_policy()
    assert writer.written_version() is not None


def test_who_saves_a_change_does_not_wait_for_workers(lost_redis: Redis, api_key: ApiKey) -> None:
    see_worker("one")
    make_key("Globex")
    assert writer.written_version() is None
    lost_redis.sadd(keys.pool_workers_resynced(POOL), "one")
    assert writer.reconcile_policy()


def test_a_lost_redis_waits_longer_for_an_outbox_that_finds_no_room(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its worker appends more as soon as the collector has made room."""
    Worker.objects.sync([a_worker_info(pool=POOL)])
    redis.sadd(keys.pool_usage_withheld(POOL), OUTBOX)
    redis.expire(keys.pool_usage_withheld(POOL), 600)
    request_id = append(redis, api_key, 1)
    monkeypatch.setattr(resync, "TIMEOUT_SECONDS", 0)
    with pytest.raises(writer.RestoreNotReady):
        resync.resync_lost_redis(redis)
    assert UsageRecord.objects.filter(request_id=uuid.UUID(request_id)).exists(), "room is made"
    monkeypatch.setattr(resync, "BACKLOG_TIMEOUT_SECONDS", 0)
    resync.resync_lost_redis(redis)


def test_nothing_counts_as_posted_while_an_outbox_has_found_no_room(
    redis: Redis, api_key: ApiKey
) -> None:
    assert collector.is_all_usage_posted()
    redis.sadd(keys.pool_usage_withheld(POOL), OUTBOX)
    assert not collector.is_all_usage_posted()
    redis.srem(keys.pool_usage_withheld(POOL), OUTBOX)
    assert collector.is_all_usage_posted()
