"""The collector, against a real PostgreSQL and Redis: what it reads, and what it leaves there."""

import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db import InterfaceError, OperationalError, ProgrammingError, connection
from redis import Redis

from gpu_workers.protocol import keys, stream_fields
from gpu_workers.protocol.messages import Outcome
from inference.models import DailyUsage, UsageQuarantine, UsageRecord
from inference.operations.sum_checks import sum_problems
from inference.usage import collector, ingest
from inference.usage.collector import UsageCollector, run_collectors
from inference.usage.ingest import record_entries
from inference.usage.rows import StreamEntry
from tenants.billing.ledger.chain import ledger_problems
from tenants.billing.ledger.waiting import LONGEST_WAIT, post_due
from tenants.billing.models import LedgerTransaction, TransactionKind
from tenants.isolation.scoping import operator_scope
from tenants.models import ApiKey
from tests.support.polling import eventually_sync
from tests.support.projects import make_key
from tests.support.usage_entries import (
    ARRIVED_MS,
    COST_NANOS,
    POOL,
    PRICED,
    append,
    revenue,
    usage_entry,
    waiting,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("operators_session")]


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
    assert record.arrived_at.timestamp() == pytest.approx(ARRIVED_MS / 1000)
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
    monkeypatch.setattr(collector, "PAGE", 10)
    monkeypatch.setattr(collector, "PAGES_OF_A_BATCH", 2)
    append(redis, *(usage_entry(api_key) for _ in range(35)))
    assert UsageCollector(redis).drain() == 35
    assert UsageRecord.objects.count() == 35


def test_what_a_dead_consumer_left_unfinished_is_taken_over(redis: Redis, api_key: ApiKey) -> None:
    append(redis, usage_entry(api_key), usage_entry(api_key))
    stream = keys.pool_usage(POOL)
    redis.xgroup_create(stream, stream_fields.USAGE_CONSUMER_GROUP, id="0")
    redis.xreadgroup(stream_fields.USAGE_CONSUMER_GROUP, "died", {stream: ">"})
    assert waiting(redis) == 4
    assert UsageCollector(redis).drain() == 2
    assert UsageRecord.objects.count() == 2
    assert waiting(redis) == 0


def test_a_commit_that_was_not_acknowledged_is_harmless(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies between PostgreSQL's commit and Redis' acknowledgement."""
    append(redis, usage_entry(api_key))

    def die(_self: Redis, *_: Any) -> None:
        raise SystemExit

    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(Redis, "fcall", die)
        UsageCollector(redis).drain()
    assert UsageRecord.objects.count() == 1
    UsageCollector(redis).drain()
    assert UsageRecord.objects.count() == 1
    assert waiting(redis) == 0


@pytest.mark.parametrize(
    "outage", [OperationalError("gone"), InterfaceError("closed"), ProgrammingError("no table")]
)
def test_what_is_wrong_with_the_database_puts_nothing_in_quarantine(
    redis: Redis, api_key: ApiKey, monkeypatch: pytest.MonkeyPatch, outage: Exception
) -> None:
    append(redis, usage_entry(api_key), usage_entry(api_key))
    stop, tries = threading.Event(), 0

    def fail(*_: Any) -> None:
        nonlocal tries
        tries += 1
        if tries == 2:
            stop.set()
        raise outage

    with monkeypatch.context() as patch:
        patch.setattr(collector, "MIN_BACKOFF_SECONDS", 0.01)
        patch.setattr(ingest, "add_to_rollups", fail)
        UsageCollector(redis).run(stop)
    assert tries == 2, "each time once, not for each half"
    # The collector has let go of the session's connection, and the next is another.
    with operator_scope("test"):
        assert not UsageQuarantine.objects.exists()
    UsageCollector(redis).drain()
    with operator_scope("test"):
        assert UsageRecord.objects.count() == 2


def test_entries_that_come_one_by_one_are_charged_together(redis: Redis, api_key: ApiKey) -> None:
    class Pausing(threading.Event):
        """An event that is set at the third wait; some requests end during each."""

        waits = 0

        def wait(self, timeout: float | None = None) -> bool:
            self.waits += 1
            if self.waits == 3:
                self.set()
            for _ in range(5):
                append(redis, usage_entry(api_key, prices=PRICED))
            return self.is_set()

    UsageCollector(redis).run(Pausing())
    batches = UsageRecord.objects.order_by().values("recorded_at").distinct()
    assert (UsageRecord.objects.count(), batches.count()) == (10, 2)
    post_due(datetime.now(UTC) + LONGEST_WAIT)
    assert LedgerTransaction.objects.get().kind == TransactionKind.USAGE
    assert revenue(api_key) == 10 * COST_NANOS


def test_requests_that_expired_in_a_pool_without_workers_are_on_record(
    redis: Redis, api_key: ApiKey
) -> None:
    redis.sadd(keys.known_pools(), "cold")
    entry = usage_entry(
        api_key, pool="cold", outcome=Outcome.EXPIRED, attempt=0, worker_id=None, ttft_ms=None
    )
    append(redis, entry, pool="cold")
    UsageCollector(redis).drain()
    assert UsageRecord.objects.get().outcome == "expired"


def test_collectors_that_take_each_others_entries_charge_each_once(
    redis: Redis, api_key: ApiKey, dispatch_redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes over at once what another has read and not acknowledged yet."""
    owners = [api_key, make_key("Globex"), make_key("Initech")]
    append(redis, *(usage_entry(key, prices=PRICED) for _ in range(100) for key in owners))
    begin = threading.Barrier(3)

    def collect() -> None:
        try:
            with Redis.from_url(dispatch_redis_url) as own:
                begin.wait()
                UsageCollector(own).drain()
        finally:
            connection.close()

    monkeypatch.setattr(collector, "PAGE", 10)
    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(collect) for _ in range(3)]:
            done.result(timeout=60)
    assert waiting(redis) == 0
    assert UsageRecord.objects.count() == 300
    assert sum(DailyUsage.objects.values_list("requests", flat=True)) == 300
    assert [revenue(key) for key in owners] == [100 * COST_NANOS] * 3
    assert list(ledger_problems()) == list(sum_problems()) == []


class TestRunning:
    """The collectors as in a process: in threads here, with connections of their own."""

    @pytest.fixture
    def running_collector(self, redis: Redis, api_key: ApiKey) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=run_collectors, args=(stop,))
        thread.start()
        yield
        stop.set()
        thread.join(timeout=10)
        assert not thread.is_alive()

    @pytest.mark.usefixtures("running_collector")
    def test_a_new_pool_is_found_while_running(self, redis: Redis, api_key: ApiKey) -> None:
        redis.sadd(keys.known_pools(), "brand-new")
        append(redis, usage_entry(api_key, pool="brand-new"), pool="brand-new")
        eventually_sync(lambda: UsageRecord.objects.filter(pool="brand-new").exists(), 2.0)

    @pytest.mark.usefixtures("running_collector")
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
        self,
        redis: Redis,
        api_key: ApiKey,
        monkeypatch: pytest.MonkeyPatch,
        running_collector: None,
    ) -> None:
        refused = threading.Event()
        is_down = threading.Event()
        is_down.set()

        def sometimes(entries: list[StreamEntry]) -> None:
            if is_down.is_set():
                refused.set()
                raise OperationalError("the database is gone")
            record_entries(entries)

        monkeypatch.setattr(collector, "record_entries", sometimes)
        append(redis, usage_entry(api_key), usage_entry(api_key))
        assert refused.wait(timeout=5)
        assert UsageRecord.objects.count() == 0
        is_down.clear()
        eventually_sync(lambda: UsageRecord.objects.count() == 2)
        eventually_sync(lambda: waiting(redis) == 0)
